"""Values of many rows over time: a cell is one row in one bucket of time, with minimum, mean and maximum."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Sequence
from typing import Self

__all__ = ["ABSENT", "STEPS", "Axis", "Grid", "Row", "Scale", "present"]

ABSENT = math.nan
"""A cell without a sample. Absent is not zero."""

# The most buckets for up to this many rows: about the pixels of a chart, fewer where the page would be too large.
WIDTHS = ((16, 1000), (128, 400), (400, 300), (1000, 180), (4000, 60))
FEWEST = 30
STEPS = 2000
"""Steps between the smallest and the largest value of a grid."""


@dataclasses.dataclass(frozen=True)
class Row:
    """A host, or a device of a host."""

    host: str
    device: str = ""

    def __str__(self) -> str:
        return f"{self.host} {self.device}".rstrip()


@dataclasses.dataclass(frozen=True)
class Axis:
    """Buckets of `beats` beats each; the first is centred on the first beat, so that jitter does not move samples."""

    start_ns: int
    width_ns: int
    buckets: int
    beats: int

    @classmethod
    def of(cls, first_ns: int, last_ns: int, interval_ns: int, rows: int) -> Self:
        """Buckets of one beat each, or of the fewest beats with which all fit."""
        beats = max(1, round((last_ns - first_ns) / interval_ns) + 1)
        most = next((width for limit, width in WIDTHS if rows <= limit), FEWEST)
        per_bucket = math.ceil(beats / most)
        return cls(first_ns - interval_ns // 2, per_bucket * interval_ns, math.ceil(beats / per_bucket), per_bucket)

    def at(self, bucket: int) -> int:
        """The start of a bucket, in nanoseconds."""
        return self.start_ns + bucket * self.width_ns


@dataclasses.dataclass(frozen=True)
class Scale:
    """Values as whole steps that fit 16 bits: 1 is `low`, 0 stands for no value.

    If no value is negative, steps are those of the square root: fine for small values, and still a thousandth of large
    ones.
    """

    low: float
    step: float
    rooted: bool

    @classmethod
    def of(cls, low: float, high: float) -> Self:
        """The scale for values from `low` to `high`."""
        rooted = low >= 0
        reach = math.sqrt(high) if rooted else high - low
        return cls(0.0 if rooted else low, reach / STEPS or 1.0, rooted)

    def sql(self, value: str) -> str:
        """The steps of an expression, in SQL."""
        above = f"sqrt({value})" if self.rooted else f"({value} - ({self.low!r}))"
        return f"coalesce(round({above} / {self.step!r})::USMALLINT + 1, 0)"


@dataclasses.dataclass(frozen=True)
class Grid:
    """The cells of one metric, one list for each row: means, and as steps the mean, minimum and maximum.

    A mean is `ABSENT` where there is no sample. If a bucket is one beat, `steps` has only the means.
    """

    axis: Axis
    rows: list[Row]
    extent: tuple[float, float]
    scale: Scale
    mean: list[array[float]]
    steps: list[list[list[int]]]

    def select(self, places: Sequence[int]) -> Grid:
        """The grid of only these rows."""
        return dataclasses.replace(
            self,
            rows=[self.rows[at] for at in places],
            mean=[self.mean[at] for at in places],
            steps=[[plane[at] for at in places] for plane in self.steps],
        )


def present(values: Sequence[float]) -> Sequence[float]:
    """The values without the absent ones."""
    return [value for value in values if not math.isnan(value)] if math.isnan(sum(values)) else values
