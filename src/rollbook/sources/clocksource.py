"""/sys/devices/system/clocksource: hardware clock that the kernel uses (timers/timekeeping)."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Files, Pages, info, same

ROOT = "/sys/devices/system/clocksource/clocksource0"


class Clocksource(Facts):
    """The clock in use. After a fallback from tsc to hpet every timestamp is slow."""

    current: Annotated[str, same()]
    available: Annotated[list[str], info()]


def parse(pages: Pages) -> Clocksource:
    """The current clock, and the list of available ones."""
    if len(pages["current"].split()) != 1:
        raise ParseError(f"not a single clock: {pages['current'][:80]!r}")
    return Clocksource(pages["current"], pages.get("available", "").split())


SOURCE = Files({"current": f"{ROOT}/current_clocksource", "available": f"{ROOT}/available_clocksource"}, parse)
