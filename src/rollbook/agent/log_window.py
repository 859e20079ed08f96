"""Finds the lines of a log that are in a time window. Part of the agent for issue reports; see `evidence.py`."""

import os
import re
import time

BLOCK = 1 << 16
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
DATE = re.compile(
    rb"\W?(?:(\d{4})-(\d\d)-(\d\d)[T ]|([A-Z][a-z]{2}) {1,2}(\d{1,2}) |[IWEF](\d\d)(\d\d) )"
    rb"(\d\d):(\d\d):(\d\d)(?:[.,]\d+)?(Z|[+-]\d\d:?\d\d)?"
)


def time_of(line: bytes, now: float) -> "float | None":
    """The time at the start of a log line; a time without a zone is local, one without a year is in the last one."""
    found = DATE.match(line)
    if not found:
        return None
    year, month, day, name, short_day, klog_month, klog_day, hour, minute, second, zone = found.groups()
    if name and name.decode() not in MONTHS:
        return None
    this_year = int(year or time.localtime(now).tm_year)
    month = MONTHS.index(name.decode()) + 1 if name else int(month or klog_month)
    rest = month, int(day or short_day or klog_day), int(hour), int(minute), int(second), 0, 0
    try:
        if zone:
            import calendar

            minutes = 0 if zone == b"Z" else int(zone[:1] + b"1") * (int(zone[1:3]) * 60 + int(zone[-2:]))
            return calendar.timegm((this_year,) + rest) - minutes * 60.0
        moment = time.mktime((this_year,) + rest + (-1,))
        return moment if year or moment <= now + 86400 else time.mktime((this_year - 1,) + rest + (-1,))
    except (ValueError, OverflowError):
        return None


class TimeWindow:
    """Passes the lines of a stream that are in the time window; a line without a time goes with the one before it."""

    def __init__(self, since: float, until: float) -> None:
        self.since, self.until = since, until or float("inf")
        self.now, self.rest, self.inside = time.time(), b"", True

    def filter(self, block: bytes) -> bytes:
        lines = (self.rest + block).split(b"\n")
        # At the end of the stream a last line without a newline is left, or nothing.
        self.rest = lines.pop() if block or not lines[-1] else b""
        kept = []
        for line in lines:
            stamp = time_of(line, self.now)
            if stamp is not None:
                self.inside = self.since <= stamp < self.until + 1
            if self.inside:
                kept.append(line + b"\n")
        return b"".join(kept)


def line_start(fd: int, at: int) -> int:
    """The start of the first line after a position."""
    block = os.pread(fd, BLOCK, at - 1)
    return at + block.find(b"\n") if b"\n" in block else at


def position(fd: int, size: int, moment: float) -> "int | None":
    """The position of the first line that is not earlier, by bisection: the times of a log grow.

    None if no time was found, which decides nothing about the lines.
    """
    low, high, now, dated = 0, size, time.time(), False
    while high - low > BLOCK:
        middle = (low + high) // 2
        found = dated_line(fd, middle, high, now)
        dated = dated or found is not None
        if found is None or found[1] >= moment:
            high = middle
        else:
            low = found[0]
    while low < size and (dated or low < high):  # the lines of the last block, one by one
        line = os.pread(fd, 4096, low)
        stamp = time_of(line, now)
        dated = dated or stamp is not None
        if not line or (stamp is not None and stamp >= moment):
            break
        end = line.find(b"\n") + 1
        low += end or len(line)
    return low if dated else None


def dated_line(fd: int, at: int, end: int, now: float) -> "tuple[int, float] | None":
    """Position and time of the first line with a time between two positions."""
    start = line_start(fd, at)
    data = os.pread(fd, min(BLOCK, max(0, end - start)), start)
    for line in data.split(b"\n"):
        stamp = time_of(line, now)
        if stamp is not None:
            return start, stamp
        start += len(line) + 1
    return None
