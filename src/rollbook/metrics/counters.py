"""How rates are computed, in Python for samples as they arrive and in SQL for the tables of a record.

A rate is the rise of a counter over the host's own monotonic time between two consecutive reads. There is none across
a gap of more than two and a half intervals, across a reboot or a suspend, and where a counter was reset. A counter that
falls was reset, unless its source declares where it wraps.
"""

from __future__ import annotations

from rollbook.protocol.beats import LONGEST_STEP
from rollbook.sources.base import Compare

__all__ = ["HOLD", "MACROS", "is_steady", "is_steady_sql", "rise", "rise_sql"]

HOLD = 1.5
"""A value of a source that is not read on every beat holds for this many of that source's own intervals."""
# Seconds, and share of the time passed, by which the clocks of host and collector may disagree while nothing is wrong.
CLOCK_SLACK, CLOCK_SLACK_SHARE = 0.5, 0.01

# A host may send any number of 64 bits, and an overflow would end the query for all hosts: a counter below zero, which
# the kernel never writes, has no rise.
MACROS = (
    "CREATE MACRO rise(now, before) AS CASE WHEN now >= before AND before >= 0 THEN now - before END",
    """CREATE MACRO rise_ticks(now, before) AS CASE WHEN before < 0 THEN NULL
        WHEN now < before THEN 0 ELSE now - before END""",
    """CREATE MACRO rise_sized(now, before, size) AS CASE WHEN now >= before AND before >= 0 THEN now - before
        WHEN before < size AND before >= size - size // 4 AND now >= 0 AND now < size // 4
        THEN now - before + size END""",
    """CREATE MACRO rise_to(now, before, top) AS CASE WHEN now >= before AND before >= 0 THEN now - before
        WHEN now >= 0 AND now < before AND before <= top THEN top - before + now END""",
)


def rise(now: int, before: int, compare: Compare, top: int | None = None) -> int | None:
    """By how much a counter rose; None if it was reset or negative. `top` is the value of the column where it wraps.

    Times in ticks may step back by one or two (proc_stat(5)): no time has passed then. A counter of fixed width
    wrapped if it fell from the last quarter of its range into the first.
    """
    if before < 0:
        return None
    if now >= before:
        return now - before
    if compare.unit == "ticks":
        return 0
    if isinstance(compare.wraps, str):
        return top - before + now if top is not None and now >= 0 and before <= top else None
    size = compare.wraps
    return now - before + size if size - size // 4 <= before < size and 0 <= now < size // 4 else None


def rise_sql(now: str, before: str, compare: Compare, *, top: str = "", wide: bool = False) -> str:
    """The same in SQL, for the macros of `MACROS`; `wide` counters do not fit 64 bits with a sign."""
    if compare.unit == "ticks":
        return f"rise_ticks({now}, {before})"
    if isinstance(compare.wraps, str):
        return f"rise_to({now}, {before}, {top})" if top else f"rise({now}, {before})"
    if compare.wraps:
        return f"rise_sized({now}, {before}, {compare.wraps})"
    return f"rise({now}::HUGEINT, {before}::HUGEINT)" if wide else f"rise({now}, {before})"


def is_steady(seconds: float, passed: float, step: float) -> bool:
    """Whether a rate may be taken between two reads, `seconds` apart on the host and `passed` on the collector.

    If the host's clock restarted or stood still while the collector's went on, the host rebooted or was suspended.
    """
    return 0 < seconds <= LONGEST_STEP * step and passed - seconds < CLOCK_SLACK + CLOCK_SLACK_SHARE * passed


def is_steady_sql(step: str) -> str:
    """The same in SQL, over the columns `seconds` and `passed`."""
    return (
        f"seconds > 0 AND seconds <= {LONGEST_STEP} * {step} "
        f"AND passed - seconds < {CLOCK_SLACK} + {CLOCK_SLACK_SHARE} * passed"
    )
