"""Beats, the times at which samples are due: multiples of the interval on the collector's clock."""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import math
from typing import Self

__all__ = ["LONGEST_STEP", "Schedule", "nearest_beat", "shell_step"]

LONGEST_STEP = 2.5
"""Samples further apart than this many intervals have a gap between them, and no rate is computed across it."""

SECOND = 10**9
FINEST, COARSEST = SECOND // 2, 32 * SECOND
"""The interval at the start of a run that has no given interval, and the longest one that it grows to."""
FINE_FOR = 1792 * SECOND
"""How long the first interval lasts: 3,584 samples, just below the default limit of a table."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The interval of a recording over time, in nanoseconds; 0 if nothing is sampled.

    It starts with `interval_ns` and doubles at each time in `doubles`, on the collector's clock. These times are
    multiples of all intervals, so that hosts agree on beats without a message, and every coarse beat is a fine one too.
    With `whole_seconds` each interval is rounded up, as the shell stand-in does.
    """

    interval_ns: int
    doubles: tuple[int, ...] = ()
    whole_seconds: bool = False

    @classmethod
    def adaptive(cls, now_ns: int) -> Self:
        """The schedule of a run of unknown length: 0.5 s for half an hour, doubled whenever the run is twice as long.

        So a run of any length up to 32 hours has at most 3,600 samples per host in its tables.
        """
        start = now_ns // COARSEST * COARSEST
        count = (COARSEST // FINEST).bit_length() - 1
        return cls(FINEST, tuple(start + (FINE_FOR << number) for number in range(count)))

    @property
    def order(self) -> bytes:
        """The order that makes an agent sample at these times."""
        return b"\t".join([b"sample", *(b"%d" % number for number in (self.interval_ns, *self.doubles))]) + b"\n"

    def at(self, ns: int) -> int:
        """The interval at a time."""
        interval = self.interval_ns << bisect.bisect_right(self.doubles, ns)
        return -(-interval // SECOND) * SECOND if self.whole_seconds else interval

    def beats(self, start_ns: int, end_ns: int) -> float:
        """How many intervals there are between two times."""
        edges = [start_ns, *(at for at in self.doubles if start_ns < at < end_ns), end_ns]
        return sum((end - start) / self.at(start) for start, end in itertools.pairwise(edges))


def nearest_beat(at_ns: int, interval_ns: int) -> int:
    """The beat nearest to a time: a multiple of the interval on the collector's clock.

    Count beats from such a multiple, not from the first sample: that may be the sample of a mark, between two beats.
    """
    return (at_ns + interval_ns // 2) // interval_ns * interval_ns


def shell_step(interval: float) -> float:
    """The seconds between two samples of the shell stand-in: the interval, rounded up to whole seconds."""
    return float(math.ceil(interval))
