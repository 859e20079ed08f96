"""Cells as text small enough for a page: 16-bit steps, differences over time, deflate, base64.

Of each cell the page gets the mean, and where a bucket holds several samples also the least and the greatest, so
that peaks survive. A value becomes a whole number of steps above `low`, and 0 where there is none. Values that
cannot be negative and reach far are rooted first: their steps are fine where they are small and stay a thousandth
where they are large. The steps of a row are written as differences; `least` and `greatest` as distances from the
mean. Differences are folded to be positive (0, -1, 1, -2, … become 0, 1, 2, 3, …) and all low bytes are put before
all high bytes, which deflate likes best.
"""

from __future__ import annotations

import base64
import math
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence

import msgspec

from rollbook.report.grid import Grid

__all__ = ["Packed", "pack"]

STEPS = 2000
LEVEL = 6


class Packed(msgspec.Struct, frozen=True):
    """How to read the cells of a grid: `data` holds `planes` × rows × buckets folded differences."""

    rows: int
    buckets: int
    planes: int
    low: float
    step: float
    rooted: bool
    data: str


def pack(grid: Grid) -> Packed | None:
    """The grid as text; None where it has no sample."""
    extent = grid.extent
    if extent is None:
        return None
    low, high = extent
    rooted = low >= 0
    low = 0.0 if rooted else low
    top = math.sqrt(high) if rooted else high - low
    step = top / STEPS or 1.0
    several = grid.axis.beats > 1
    means = _steps(grid.mean, low, step, rooted=rooted)
    words = array("H")
    for line in means:
        words.extend(_folded(line, [0, *line[:-1]]))
    for plane in (grid.low, grid.high) if several else ():
        for line, mean in zip(_steps(plane, low, step, rooted=rooted), means, strict=True):
            words.extend(_folded(line, mean))
    return Packed(
        rows=len(grid.rows),
        buckets=grid.axis.buckets,
        planes=3 if several else 1,
        low=low,
        step=step,
        rooted=rooted,
        data=_squeezed(words),
    )


def _steps(lines: Iterable[Sequence[float]], low: float, step: float, *, rooted: bool) -> list[list[int]]:
    """Whole steps, from 1 up; 0 where there is nothing."""
    isnan, sqrt = math.isnan, math.sqrt
    if rooted:
        return [[0 if isnan(v) else int(sqrt(v) / step + 1.5) for v in line] for line in lines]
    return [[0 if isnan(v) else int((v - low) / step + 1.5) for v in line] for line in lines]


def _folded(line: Sequence[int], base: Sequence[int]) -> list[int]:
    pairs = zip(line, base, strict=True)
    return [2 * (value - known) if value >= known else 2 * (known - value) - 1 for value, known in pairs]


def _squeezed(words: array[int]) -> str:
    raw = words.tobytes()
    even, odd = raw[0::2], raw[1::2]
    squeezer = zlib.compressobj(LEVEL, wbits=-15)
    packed = squeezer.compress(even + odd if sys.byteorder == "little" else odd + even) + squeezer.flush()
    return base64.b64encode(packed).decode()
