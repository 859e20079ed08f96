"""Who stands out: robust statistics over peers and over time.

At each moment a row is measured against the median of all rows, in units of their median absolute deviation (MAD).
The MAD of one moment may be small by chance, so the typical MAD of the whole run is its lower bound, and so are a
tenth of the median and a floor below which nobody would care. A row stands out where most moments of a short window
do: a single spike moves no median, which is what keeps the result stable under noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal

from rollbook.metrics.grid import ABSENT, median, present

__all__ = ["DEVIATIONS", "FEWEST_ROWS", "Judge", "Stretch", "against_peers", "middle_and_scale", "over_time"]

Direction = Literal["high", "both"]

FEWEST_ROWS = 5
"""With fewer rows there is no telling who is the odd one."""
DEVIATIONS = 4.0
RELATIVE = 0.1  # so that four deviations are at least 40 % of the median
TO_SIGMA = 1.4826  # the MAD of normal noise times this is its standard deviation
WINDOW = 9
FEWEST_HOT = 5  # moments of a window, and two thirds of those known
HOLE = 2 * WINDOW  # calm for no longer than this does not end a stretch
ODD_SHARE = 0.25  # when more rows than this differ they are a second group, not outliers


@dataclasses.dataclass(frozen=True)
class Judge:
    """What counts for a metric: the direction that matters, and the difference that is nothing in its unit."""

    direction: Direction
    floor: float


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A row that stood out from bucket `first` to `last`: its median value, and that of its `peers` (0: of itself)."""

    row: int
    first: int
    last: int
    value: float
    usual: float
    peers: int
    deviations: float

    @property
    def strength(self) -> float:
        """What to show first: far off for long."""
        return abs(self.deviations) * float((self.last - self.first + 1) ** 0.5)


def against_peers(lines: Sequence[Sequence[float]], judge: Judge) -> list[Stretch]:
    """The rows that stand out from their peers, each with its strongest stretch, the strongest row first.

    `lines` holds one row of values each, absent ones not a number. A quarter of the rows at most can stand out.
    """
    if len(lines) < FEWEST_ROWS:
        return []
    middles, noises = _across(lines)
    known = sorted(present(noises))
    if not known:
        return []
    usual_noise = median(known)
    scales = [
        max(noise, usual_noise, judge.floor, RELATIVE * abs(middle))
        for middle, noise in zip(middles, noises, strict=True)
    ]
    found = []
    for row, line in enumerate(lines):
        offs = [(value - middle) / scale for value, middle, scale in zip(line, middles, scales, strict=True)]
        found += _Line(row, line, middles, offs, len(lines) - 1).strongest(judge.direction)
    if len(found) > ODD_SHARE * len(lines):
        return []
    return sorted(found, key=lambda stretch: -stretch.strength)


def over_time(row: int, line: Sequence[float], judge: Judge) -> list[Stretch]:
    """The strongest stretch in which a row stood out from its own median over the run, if any."""
    known = sorted(present(line))
    if len(known) < 4 * WINDOW:
        return []
    middle, scale = middle_and_scale(known, judge)
    offs = [(value - middle) / scale for value in line]
    return _Line(row, line, [middle] * len(line), offs, 0).strongest(judge.direction)


def middle_and_scale(known: Sequence[float], judge: Judge) -> tuple[float, float]:
    """The median of sorted numbers, and how much one deviation from it is."""
    middle, noise = _middle_and_noise(known)
    return middle, max(noise, judge.floor, RELATIVE * abs(middle))


def _across(lines: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """The median of each bucket over all rows, and the noise around it."""
    columns = (sorted(present(column)) for column in zip(*lines, strict=True))
    pairs = [_middle_and_noise(known) if len(known) >= FEWEST_ROWS else (ABSENT, ABSENT) for known in columns]
    return [middle for middle, _ in pairs], [noise for _, noise in pairs]


def _middle_and_noise(known: Sequence[float]) -> tuple[float, float]:
    middle = median(known)
    return middle, TO_SIGMA * median(sorted([abs(value - middle) for value in known]))


@dataclasses.dataclass(frozen=True)
class _Line:
    """One row: its values, what was usual at each moment, and how far off it was."""

    row: int
    values: Sequence[float]
    usual: Sequence[float]
    offs: Sequence[float]
    peers: int

    def strongest(self, direction: Direction) -> list[Stretch]:
        """The one stretch to tell of, if there is any."""
        found = [self._stretch(*ends) for ends in _stretches(self.offs)]
        if direction != "high":
            found += [self._stretch(*ends) for ends in _stretches([-off for off in self.offs])]
        return sorted(found, key=lambda stretch: -stretch.strength)[:1]

    def _stretch(self, first: int, last: int) -> Stretch:
        span = [at for at in range(first, last + 1) if not math.isnan(self.offs[at])]
        value, usual, off = (median(sorted(known[at] for at in span)) for known in (self.values, self.usual, self.offs))
        return Stretch(self.row, first, last, value, usual, self.peers, off)


def _stretches(offs: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Where most of each window is far off; it reaches as far as most of each window is half as far off."""
    if sum(map(DEVIATIONS.__lt__, offs)) < FEWEST_HOT:
        return
    warm = _most(offs, DEVIATIONS / 2)
    begin = end = None
    for at, core in enumerate(_most(offs, DEVIATIONS)):
        if not core:
            continue
        if begin is None or end is None:
            begin = at
        elif at - end > HOLE:
            yield _reach(warm, begin, end)
            begin = at
        end = at
    if begin is not None and end is not None:
        yield _reach(warm, begin, end)


def _most(offs: Sequence[float], limit: float) -> list[bool]:
    """For each moment whether most of the window around it is beyond the limit."""
    hot = [0, *itertools.accumulate(off > limit for off in offs)]
    known = [0, *itertools.accumulate(not math.isnan(off) for off in offs)]
    found = []
    for at in range(len(offs)):
        first, last = max(0, at - WINDOW // 2), min(len(offs), at + WINDOW // 2 + 1)
        beyond = hot[last] - hot[first]
        found.append(beyond >= FEWEST_HOT and 3 * beyond >= 2 * (known[last] - known[first]))
    return found


def _reach(warm: Sequence[bool], first: int, last: int) -> tuple[int, int]:
    while first > 0 and warm[first - 1]:
        first -= 1
    while last < len(warm) - 1 and warm[last + 1]:
        last += 1
    return first, last
