"""chronyc tracking, systemd-timesyncd: whether the clock is synchronised, and how well (chronyc(1)).

`timedatectl` is not used because it starts a service on the host.
"""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Order, Pages, Source, gauge, info, same
from rollbook.sources.text import integer, number

CHRONY = ("chronyc", "-c", "-n", "tracking")
TIMESYNCD = "/run/systemd/timesync/synchronized"
ZONE, ZONE_NAME = "/etc/localtime", "/etc/timezone"


class TimeSync(Facts):
    """State of the clock. chrony reports the offset; timesyncd only whether the clock was set since boot.

    `synchronised` is null if neither runs: another daemon may set the clock. The offset has the sign that chronyc
    uses; the error is at most root delay / 2 + root dispersion.
    """

    synchronised: Annotated[bool | None, same()] = None
    daemon: Annotated[str | None, same()] = None
    timezone: Annotated[str | None, same()] = None
    reference: Annotated[str | None, info()] = None
    stratum: Annotated[int | None, info()] = None
    offset_seconds: Annotated[float | None, gauge("s")] = None
    root_delay_seconds: Annotated[float | None, gauge("s")] = None
    root_dispersion_seconds: Annotated[float | None, gauge("s")] = None
    leap: Annotated[str | None, info()] = None


def parse(pages: Pages) -> TimeSync:
    """The report of chronyd if it responds, else the file that timesyncd creates when it has set the clock."""
    tracking = pages.get(" ".join(CHRONY), "").strip().split(",")
    if len(tracking) >= 14:
        found = _chrony(tracking)
    elif TIMESYNCD in pages:
        found = TimeSync(synchronised=True, daemon="systemd-timesyncd")
    else:
        found = TimeSync()
    # A link to a file below zoneinfo; Debian also has a file with the name.
    linked = pages.get(ZONE, "").partition("zoneinfo/")[2]
    found.timezone = linked or pages.get(ZONE_NAME, "").strip() or None
    if found == TimeSync():
        raise ParseError(f"no time daemon responds: {' '.join(pages.values()).strip()[:80]!r}")
    return found


def _chrony(words: list[str]) -> TimeSync:
    """Reference id and name, stratum, time, three offsets, three frequencies, root delay and root dispersion."""
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


SOURCE = Source(
    (Order("run", CHRONY), Order("read", (TIMESYNCD,)), Order("link", (ZONE,)), Order("read", (ZONE_NAME,))),
    parse,
    TimeSync,
)
