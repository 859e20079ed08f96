"""/etc/tuned/active_profile: active tuning profile (tuned-adm(8))."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, same

ROOT = "/etc/tuned"


class Tuned(Facts):
    """The profile (empty for none), and whether it was set manually or by tuned."""

    profile: Annotated[str | None, same()] = None
    chosen_by: Annotated[str | None, same()] = None


def parse(pages: Pages) -> Tuned:
    """One value per file; several merged profiles are separated by blanks."""
    return Tuned(pages.get("profile"), pages.get("chosen_by"))


SOURCE = Files({"profile": f"{ROOT}/active_profile", "chosen_by": f"{ROOT}/profile_mode"}, parse)
