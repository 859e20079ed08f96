"""Cells as text small enough for a page: 16-bit steps, differences over time, deflate, base64.

Of each cell the page gets the mean, and where a bucket holds several samples also the least and the greatest, so
that peaks survive. The steps of a row are written as differences; least and greatest as distances from the mean.
Differences are folded to be positive (0, -1, 1, -2, … become 0, 1, 2, 3, …) and all low bytes are put before all
high bytes, which deflate likes best.
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
# By difference; a negative one counts from the end of the list. Steps go from 0 to STEPS + 1.
FOLDED = [2 * difference for difference in range(STEPS + 2)] + [2 * lower - 1 for lower in range(STEPS + 1, 0, -1)]


class Packed(msgspec.Struct, frozen=True):
    """How to read the cells of a grid: `data` holds `planes` × rows × buckets folded differences."""

    rows: int
    buckets: int
    planes: int
    low: float
    step: float
    rooted: bool
    data: str


def pack(grid: Grid) -> Packed:
    """The grid as text."""
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
        data=_squeezed(words),
    )


def _folded(line: Sequence[int], base: Sequence[int]) -> Iterator[int]:
    return map(FOLDED.__getitem__, map(operator.sub, line, base))


def _squeezed(words: array[int]) -> str:
    raw = words.tobytes()
    even, odd = raw[0::2], raw[1::2]
    squeezer = zlib.compressobj(LEVEL, wbits=-15)
    packed = squeezer.compress(even + odd if sys.byteorder == "little" else odd + even) + squeezer.flush()
    return base64.b64encode(packed).decode()
