"""Beats, the times at which samples are due: multiples of the interval on the collector's clock."""

from __future__ import annotations

import math

__all__ = ["LONGEST_STEP", "nearest_beat", "shell_step"]

LONGEST_STEP = 2.5
"""Samples further apart than this many intervals have a gap between them, and no rate is computed across it."""


def nearest_beat(at_ns: int, interval_ns: int) -> int:
    """The beat nearest to a time: a multiple of the interval on the collector's clock.

    Count beats from such a multiple, not from the first sample: that may be the sample of a mark, between two beats.
    """
    return (at_ns + interval_ns // 2) // interval_ns * interval_ns


def shell_step(interval: float) -> float:
    """The seconds between two samples of the shell stand-in: the interval, rounded up to whole seconds."""
    return float(math.ceil(interval))
