"""Times at the beginning of log lines, in the formats of journald, dmesg, syslog, slurmd and container runtimes."""

from __future__ import annotations

import datetime as dt
import functools
import re

__all__ = ["line_time"]

HEAD = 64  # characters of a line in which its time is
MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
ISO = re.compile(
    r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?"
)  # journalctl -o short-iso-precise, dmesg --time-format iso, slurmd, containerd
CTIME = re.compile(r"\[\w{3} (\w{3}) +(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})\]")  # dmesg -T
SYSLOG = re.compile(r"(\w{3}) +(\d{1,2}) (\d\d:\d\d:\d\d) ")  # without a year
UPTIME = re.compile(r"(?:<\d+>)?\[ *(\d+)\.(\d{1,6})\]")  # plain dmesg


def line_time(
    line: str, near: dt.datetime, boot: dt.datetime | None = None, zone: dt.tzinfo = dt.UTC
) -> dt.datetime | None:
    """The time of a line, in UTC; None if it has none or its format is unknown.

    `near` is when the log was read, from which a missing year is derived, and `boot` when the node booted, for lines
    with the time since then. `zone` is the node's time zone, for times without one.
    """
    head = line[:HEAD]
    try:
        if found := ISO.match(head):
            return _iso(found[1], found[2], zone, found[3] or "", found[4] or "")
        if found := CTIME.match(head):
            return _iso(f"{found[4]}-{MONTHS[found[1]]:02}-{int(found[2]):02}", found[3], zone)
        if found := SYSLOG.match(head):
            day, year = f"{MONTHS[found[1]]:02}-{int(found[2]):02}", near.astimezone(zone).year
            at = _iso(f"{year}-{day}", found[3], zone)
            return at if at <= near + dt.timedelta(days=1) else _iso(f"{year - 1}-{day}", found[3], zone)
        if boot is not None and (found := UPTIME.match(head)):
            return boot + dt.timedelta(seconds=float(f"{found[1]}.{found[2]}"))
    except (ValueError, KeyError, OverflowError):  # such as the 31st of February
        return None
    return None


@functools.lru_cache(maxsize=4096)
def _iso(date: str, time: str, zone: dt.tzinfo, fraction: str = "", offset: str = "") -> dt.datetime:
    at = dt.datetime.fromisoformat(f"{date}T{time}.{fraction[:6]:0<6}{offset}")
    return (at if offset else at.replace(tzinfo=zone)).astimezone(dt.UTC)
