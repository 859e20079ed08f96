"""/etc/tuned/active_profile: the tuning profile in force (tuned-adm(8))."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, same

ROOT = "/etc/tuned"


class Tuned(Facts):
    """The profile, and whether a person chose it or tuned did. Empty text: no profile."""

    profile: Annotated[str | None, same()] = None
    chosen_by: Annotated[str | None, same()] = None


def parse(pages: Pages) -> Tuned:
    """One word per file; several profiles are merged where blanks separate them."""
    return Tuned(pages.get("profile"), pages.get("chosen_by"))


SOURCE = Files({"profile": f"{ROOT}/active_profile", "chosen_by": f"{ROOT}/profile_mode"}, parse)
