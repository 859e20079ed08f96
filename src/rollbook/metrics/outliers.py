"""Outliers: rows that differ from their peers, or from themselves over time, by robust statistics.

At each moment a row is measured against the median of all rows, in units of their median absolute deviation (MAD).
The MAD of one moment may be small by chance, so its lower bounds are the typical MAD of the whole run, a tenth of the
median, and the difference that is negligible for the metric. A row is an outlier where most moments of a short window
are far off: a single spike moves no median, which keeps the result stable under noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Literal

from rollbook.metrics.grid import ABSENT, present

__all__ = [
    "DEVIATIONS",
    "FEWEST_FAR",
    "FEWEST_ROWS",
    "TO_SIGMA",
    "Direction",
    "Stretch",
    "Threshold",
    "against_peers",
    "median_and_scale",
    "over_time",
]

Direction = Literal["high", "both"]

FEWEST_ROWS = 5
"""Fewer rows are too few to find an outlier among them."""
DEVIATIONS = 4.0
RELATIVE = 0.1  # so that four deviations are at least 40 % of the median
TO_SIGMA = 1.4826  # the MAD of normal noise times this is its standard deviation
WINDOW = 9
FEWEST_FAR = 5  # moments of a window that must be far off, and two thirds of those known
HOLE = 2 * WINDOW  # a pause of at most this many moments does not end a stretch
OUTLIER_SHARE = 0.25  # if more rows than this differ they are a second group, not outliers


@dataclasses.dataclass(frozen=True)
class Threshold:
    """What makes a value of a metric an outlier: the direction that matters, and the difference that does not."""

    direction: Direction
    negligible: float


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A row that was far off from bucket `first` to `last`: its median value, and that of its `peers` (0: its own)."""

    row: int
    first: int
    last: int
    value: float
    usual: float
    peers: int
    deviations: float

    @property
    def strength(self) -> float:
        """How far off and for how long, to order outliers by."""
        return abs(self.deviations) * float((self.last - self.first + 1) ** 0.5)


def against_peers(lines: Sequence[Sequence[float]], threshold: Threshold) -> list[Stretch]:
    """The rows that differ from their peers, each with its strongest stretch, the strongest row first.

    `lines` holds the values of each row, NaN where there is none. At most a quarter of the rows can be outliers.
    """
    if len(lines) < FEWEST_ROWS:
        return []
    medians, noises = _across(lines)
    known = present(noises)
    if not known:
        return []
    usual_noise = median(known)
    scales = [
        max(noise, usual_noise, threshold.negligible, RELATIVE * abs(middle))
        for middle, noise in zip(medians, noises, strict=True)
    ]
    found = []
    for row, line in enumerate(lines):
        offs = [(value - middle) / scale for value, middle, scale in zip(line, medians, scales, strict=True)]
        found += _strongest(row, line, medians, offs, peers=len(lines) - 1, direction=threshold.direction)
    if len(found) > OUTLIER_SHARE * len(lines):
        return []
    return sorted(found, key=lambda stretch: -stretch.strength)


def over_time(row: int, line: Sequence[float], threshold: Threshold) -> list[Stretch]:
    """The strongest stretch in which a row differed from its own median over the run, if any."""
    known = present(line)
    if len(known) < 4 * WINDOW:
        return []
    middle, scale = median_and_scale(known, threshold)
    offs = [(value - middle) / scale for value in line]
    return _strongest(row, line, [middle] * len(line), offs, peers=0, direction=threshold.direction)


def median_and_scale(values: Sequence[float], threshold: Threshold) -> tuple[float, float]:
    """The median of some numbers, and the size of one deviation from it."""
    middle, noise = _median_and_noise(values)
    return middle, max(noise, threshold.negligible, RELATIVE * abs(middle))


def _across(lines: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """The median of each bucket over all rows, and the noise around it."""
    columns = (present(column) for column in zip(*lines, strict=True))
    pairs = [_median_and_noise(known) if len(known) >= FEWEST_ROWS else (ABSENT, ABSENT) for known in columns]
    return [middle for middle, _ in pairs], [noise for _, noise in pairs]


def _median_and_noise(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)  # makes the differences fast to sort
    middle = median(ordered)
    return middle, TO_SIGMA * median([abs(value - middle) for value in ordered])


def _strongest(
    row: int, line: Sequence[float], usual: Sequence[float], offs: Sequence[float], *, peers: int, direction: Direction
) -> list[Stretch]:
    """The strongest stretch of a row, if there is any; `offs` is by how many deviations each of its values was off."""
    ends = list(_stretches(offs))
    if direction != "high":
        ends += _stretches([-off for off in offs])
    found = []
    for first, last in ends:
        span = [at for at in range(first, last + 1) if not math.isnan(offs[at])]
        value, middle, off = (median([known[at] for at in span]) for known in (line, usual, offs))
        found.append(Stretch(row, first, last, value, middle, peers, off))
    return sorted(found, key=lambda stretch: -stretch.strength)[:1]


def _stretches(offs: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Where most of each window is far off; extended while most of each window is half as far off."""
    if sum(map(DEVIATIONS.__lt__, offs)) < FEWEST_FAR:
        return
    near = _most(offs, DEVIATIONS / 2)
    begin = end = None
    for at, core in enumerate(_most(offs, DEVIATIONS)):
        if not core:
            continue
        if begin is None or end is None:
            begin = at
        elif at - end > HOLE:
            yield _extended(offs, near, begin, end)
            begin = at
        end = at
    if begin is not None and end is not None:
        yield _extended(offs, near, begin, end)


def _most(offs: Sequence[float], limit: float) -> list[bool]:
    """For each moment whether most of the window around it is beyond the limit."""
    far = [0, *itertools.accumulate(off > limit for off in offs)]
    known = [0, *itertools.accumulate(not math.isnan(off) for off in offs)]
    found = []
    for at in range(len(offs)):
        first, last = max(0, at - WINDOW // 2), min(len(offs), at + WINDOW // 2 + 1)
        beyond = far[last] - far[first]
        found.append(beyond >= FEWEST_FAR and 3 * beyond >= 2 * (known[last] - known[first]))
    return found


def _extended(offs: Sequence[float], near: Sequence[bool], first: int, last: int) -> tuple[int, int]:
    while first > 0 and near[first - 1]:
        first -= 1
    while last < len(near) - 1 and near[last + 1]:
        last += 1
    if all(map(math.isnan, offs[first : last + 1])):  # a hole between the values that are far off
        return max(0, first - WINDOW // 2), min(len(offs) - 1, last + WINDOW // 2)
    return first, last
