"""chronyc tracking, timedatectl show: is the clock kept in step, by whom, how closely (chronyc(1))."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Ask, Pages, Record, Source, gauge, info, same
from rollbook.sources.text import fields_of, integer, number

CHRONY = ("chronyc", "-c", "-n", "tracking")
SYSTEMD = ("timedatectl", "show")


class TimeSync(Record):
    """State of the clock. Only chrony says how far off it is; systemd knows whether it is synchronised.

    The offset has the sign that chronyc gives it; the error is at most root delay / 2 + root dispersion.
    """

    synchronised: Annotated[bool, same()]
    daemon: Annotated[str | None, same()] = None
    timezone: Annotated[str | None, same()] = None
    reference: Annotated[str | None, info()] = None
    stratum: Annotated[int | None, info()] = None
    offset_seconds: Annotated[float | None, gauge("s")] = None
    root_delay_seconds: Annotated[float | None, gauge("s")] = None
    root_dispersion_seconds: Annotated[float | None, gauge("s")] = None
    leap: Annotated[str | None, info()] = None


def parse(pages: Pages) -> TimeSync:
    """The report of chrony where its daemon answers, else systemd's, which holds for any daemon that sets the clock."""
    tracking = pages.get(" ".join(CHRONY), "").strip().split(",")
    systemd = fields_of(pages.get(" ".join(SYSTEMD), ""), "=")
    if len(tracking) >= 14:
        found = _chrony(tracking)
    elif "NTPSynchronized" in systemd:
        found = TimeSync(systemd["NTPSynchronized"] == "yes")
    else:
        said = " ".join(text.strip() for text in pages.values())
        raise ParseError(f"no program knows the clock's state: {said[:80]!r}")
    found.timezone = systemd.get("Timezone")
    return found


def _chrony(words: list[str]) -> TimeSync:
    """Reference id and name, stratum, time, offset (now, last, RMS), three of frequency, root delay and dispersion."""
    leap = words[13]
    return TimeSync(
        synchronised=leap != "Not synchronised",
        daemon="chronyd",
        reference=words[1] or None,
        stratum=integer(words[2]),
        offset_seconds=number(words[4]),
        root_delay_seconds=number(words[10]),
        root_dispersion_seconds=number(words[11]),
        leap=leap,
    )


SOURCE = Source((Ask("run", CHRONY), Ask("run", SYSTEMD)), parse, TimeSync)
