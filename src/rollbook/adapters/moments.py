"""Times as benchmarks write them, put on the clock of the run."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from rollbook.adapters.base import Ran
from rollbook.record.run import Phase

__all__ = ["inside", "place"]

SLACK_NS = 1_000_000_000  # benchmarks round, and their first rank may sit on another host


def inside(phase: Phase, ran: Ran) -> bool:
    """Whether a phase lies in the run, so that its times can be of the run's clock."""
    return ran.started_ns - SLACK_NS <= phase.start_ns <= phase.end_ns <= ran.ended_ns + SLACK_NS


def place(stamps: Sequence[str], ran: Ran) -> list[int] | None:
    """ISO times without a zone, in the order they happened, as nanoseconds since the epoch.

    They are taken as local time, and where they do not fit into the run so, as UTC. The hour that an autumn night
    has twice is read as the earliest that is not before the time that went before. None where they fit neither way.
    """
    try:
        moments = [dt.datetime.fromisoformat(stamp) for stamp in stamps]
    except ValueError:
        return None
    for zone in (None, dt.UTC):
        placed, last = [], ran.started_ns - SLACK_NS
        for moment in moments:
            readings = [moment] if moment.tzinfo else [moment.replace(tzinfo=zone, fold=fold) for fold in (0, 1)]
            fitting = [at for at in map(_nanoseconds, readings) if last <= at <= ran.ended_ns + SLACK_NS]
            if not fitting:
                break
            last = min(fitting)
            placed.append(last)
        if len(placed) == len(moments):
            return placed
    return None


def _nanoseconds(moment: dt.datetime) -> int:
    since = moment.astimezone(dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return (since.days * 86400 + since.seconds) * 10**9 + since.microseconds * 1000
