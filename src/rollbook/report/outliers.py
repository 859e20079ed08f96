"""Who stands out: robust statistics over peers and over time.

At each moment a row is measured against the median of all rows, in units of their median absolute deviation (MAD).
The MAD of one moment may be small by chance, so the typical MAD of the whole run is its lower bound, and so are a
tenth of the median and a floor below which nobody would care. A row stands out where most moments of a short window
do: a single spike moves no median, which is what keeps the result stable under noise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Literal

from rollbook.report.grid import ABSENT, median, present

__all__ = ["FEWEST_ROWS", "Judge", "Stretch", "against_peers", "over_time"]

Direction = Literal["high", "low", "both"]

FEWEST_ROWS = 5
"""With fewer rows there is no telling who is the odd one."""
DEVIATIONS = 4.0
RELATIVE = 0.1  # so that four deviations are at least 40 % of the median
TO_SIGMA = 1.4826  # the MAD of normal noise times this is its standard deviation
WINDOW = 5
MAJORITY = WINDOW // 2 + 1
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
        found += _strongest(row, line, middles, offs, judge.direction, len(lines) - 1)
    if len(found) > ODD_SHARE * len(lines):
        return []
    return sorted(found, key=lambda stretch: -stretch.strength)


def over_time(row: int, line: Sequence[float], judge: Judge) -> list[Stretch]:
    """The strongest stretch in which a row stood out from its own median over the run, if any."""
    known = sorted(present(line))
    if len(known) < 4 * WINDOW:
        return []
    middle, noise = _middle_and_noise(known)
    scale = max(noise, judge.floor, RELATIVE * abs(middle))
    offs = [(value - middle) / scale for value in line]
    return _strongest(row, line, [middle] * len(line), offs, judge.direction, 0)


def _across(lines: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """The median of each bucket over all rows, and the noise around it."""
    columns = (sorted(present(column)) for column in zip(*lines, strict=True))
    pairs = [_middle_and_noise(known) if len(known) >= FEWEST_ROWS else (ABSENT, ABSENT) for known in columns]
    return [middle for middle, _ in pairs], [noise for _, noise in pairs]


def _middle_and_noise(known: Sequence[float]) -> tuple[float, float]:
    middle = median(known)
    return middle, TO_SIGMA * median(sorted(abs(value - middle) for value in known))


def _strongest(
    row: int,
    line: Sequence[float],
    middles: Sequence[float],
    offs: Sequence[float],
    direction: Direction,
    peers: int,
) -> list[Stretch]:
    found = []
    for sign in {"high": (1,), "low": (-1,), "both": (1, -1)}[direction]:
        for first, last in _stretches([sign * off for off in offs]):
            span = [at for at in range(first, last + 1) if not math.isnan(offs[at])]
            value, usual, off = (median(sorted(known[at] for at in span)) for known in (line, middles, offs))
            found.append(Stretch(row, first, last, value, usual, peers, off))
    return sorted(found, key=lambda stretch: -stretch.strength)[:1]


def _stretches(offs: Sequence[float]) -> Iterator[tuple[int, int]]:
    """Where most of each window is far off; it reaches as far as most of each window is half as far off."""
    hot = [off > DEVIATIONS for off in offs]
    if sum(hot) < MAJORITY:
        return
    cores = _majority(hot)
    warm = _majority([off > DEVIATIONS / 2 for off in offs])
    begin = end = None
    for at, core in enumerate(cores):
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


def _majority(flags: Sequence[bool]) -> list[bool]:
    half = WINDOW // 2
    return [sum(flags[max(0, at - half) : at + half + 1]) >= MAJORITY for at in range(len(flags))]


def _reach(warm: Sequence[bool], first: int, last: int) -> tuple[int, int]:
    while first > 0 and warm[first - 1]:
        first -= 1
    while last < len(warm) - 1 and warm[last + 1]:
        last += 1
    return first, last
