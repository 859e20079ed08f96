"""/sys/devices/system/clocksource: which hardware clock the kernel counts by (timers/timekeeping)."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Files, Pages, info, same

ROOT = "/sys/devices/system/clocksource/clocksource0"


class Clocksource(Facts):
    """The clock in use. A host that fell back from tsc to hpet pays for it with every timestamp."""

    current: Annotated[str, same()]
    available: Annotated[list[str], info()]


def parse(pages: Pages) -> Clocksource:
    """One word, and the list it was chosen from."""
    if len(pages["current"].split()) != 1:
        raise ParseError(f"not one clock: {pages['current'][:80]!r}")
    return Clocksource(pages["current"], pages.get("available", "").split())


SOURCE = Files({"current": f"{ROOT}/current_clocksource", "available": f"{ROOT}/available_clocksource"}, parse)
