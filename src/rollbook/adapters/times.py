"""Converts times that benchmarks write to the clock of the run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from rollbook.adapters.base import Ran
from rollbook.records.record import Phase

__all__ = ["inside", "place"]

SLACK_NS = 1_000_000_000  # benchmarks round, and their first rank may sit on another host


def inside(phase: Phase, ran: Ran) -> bool:
    """Whether a phase lies within the run; otherwise its times are of another clock."""
    return phase.start_ns <= phase.end_ns and _in_run(phase.start_ns, ran) and _in_run(phase.end_ns, ran)


def place(stamps: Sequence[str], ran: Ran) -> list[int] | None:
    """ISO times without a zone as nanoseconds since the epoch; None if they are outside the run.

    They are taken as local time, and where they do not fit so, as UTC. In the hour that an autumn night has twice,
    a time counts only if a single reading of it lies in the run.
    """
    try:
        moments = [dt.datetime.fromisoformat(stamp) for stamp in stamps]
        return _place(moments, None, ran) or _place(moments, dt.UTC, ran)
    except (ValueError, OverflowError):  # no time, or one so far off that no zone holds it
        return None


def _place(moments: Sequence[dt.datetime], zone: dt.tzinfo | None, ran: Ran) -> list[int] | None:
    placed: list[int] = []
    for moment in moments:
        readings = [moment] if moment.tzinfo else [moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
        fitting = {at for at in map(_nanoseconds, readings) if _in_run(at, ran)}
        if len(fitting) != 1:
            return None
        placed += fitting
    return placed


def _in_run(at: int, ran: Ran) -> bool:
    return ran.started_ns - SLACK_NS <= at <= ran.ended_ns + SLACK_NS


def _nanoseconds(moment: dt.datetime) -> int:
    since = moment.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(microseconds=1) * 1000
