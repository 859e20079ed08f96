"""Cells packed for the page: 16-bit steps, differences over time, deflate, base64.

The page gets the mean of each cell, and if a bucket has several samples also the minimum and maximum. The steps of a
row are stored as differences; minimum and maximum as distances from the mean. Differences are folded to be positive (0,
-1, 1, -2, … become 0, 1, 2, 3, …), and all low bytes come before all high bytes, which compresses best.
"""

from __future__ import annotations

import base64
import operator
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence

import msgspec

from rollbook.metrics.grid import STEPS, Grid

__all__ = ["Packed", "pack"]

LEVEL = 6
# By difference; negative indices count from the end. Steps go from 0 to STEPS + 1.
FOLDED = [2 * difference for difference in range(STEPS + 2)] + [2 * lower - 1 for lower in range(STEPS + 1, 0, -1)]


class Packed(msgspec.Struct, frozen=True):
    """The packed cells of a grid: `data` has `planes` × rows × buckets folded differences."""

    rows: int
    buckets: int
    planes: int
    low: float
    step: float
    rooted: bool
    data: str


def pack(grid: Grid) -> Packed:
    """Pack a grid."""
    means, *others = grid.steps
    words = array("H")
    for line in means:
        words.extend(_folded(line, [0, *line[:-1]]))
    for plane in others:
        for line, mean in zip(plane, means, strict=True):
            words.extend(_folded(line, mean))
    return Packed(
        rows=len(grid.rows),
        buckets=grid.axis.buckets,
        planes=len(grid.steps),
        low=grid.scale.low,
        step=grid.scale.step,
        rooted=grid.scale.rooted,
        data=_compressed(words),
    )


def _folded(line: Sequence[int], base: Sequence[int]) -> Iterator[int]:
    return map(FOLDED.__getitem__, map(operator.sub, line, base))


def _compressed(words: array[int]) -> str:
    raw = words.tobytes()
    even, odd = raw[0::2], raw[1::2]
    packed = zlib.compress(even + odd if sys.byteorder == "little" else odd + even, LEVEL, wbits=-15)
    return base64.b64encode(packed).decode()
