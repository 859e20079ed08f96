"""Counters and how they rise: what is a wrap, what a reset, and which two reads belong together.

The rules that `rates` has in SQL for records, here for samples as they come.
"""

from __future__ import annotations

from rollbook.protocol.beats import LONGEST_STEP

__all__ = [
    "GOOD_FOR",
    "NARROW",
    "SLACK",
    "SLACK_SHARE",
    "WIDE",
    "rise",
    "rise_ticks",
    "steady",
]

GOOD_FOR = 1.5
"""What a source gave stands for so many of its own steps, where others are sampled more often."""
NARROW, WIDE = 1 << 32, 1 << 64
"""Where counters wrap: from the last quarter of such a range into its first. Any other fall is a reset."""
SLACK, SLACK_SHARE = 0.5, 0.01
"""Seconds, and share of the time passed, by which two clocks may part while nothing is wrong."""


def rise(now: int, before: int) -> int | None:
    """By how much a counter rose; None where it was reset."""
    if now >= before:
        return now - before
    for size in (NARROW, WIDE):
        if size - size // 4 <= before < size and now < size // 4:
            return now - before + size
    return None


def rise_ticks(now: int, before: int) -> int:
    """By how much a time in ticks rose. It may step back by one or two (proc_stat(5)): nothing has passed then."""
    return max(0, now - before)


def steady(seconds: float, passed: float, step: float) -> bool:
    """Whether two reads belong together: so many seconds apart on the host, and so many passed for the collector.

    A clock of the host that stood still or began anew while the collector's went on: it was suspended, or rebooted.
    """
    return 0 < seconds <= LONGEST_STEP * step and passed - seconds < SLACK + SLACK_SHARE * passed
