"""Values of many rows over time: a cell is one row in one bucket of time, with the least, mean and greatest sample."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Self

__all__ = ["ABSENT", "Axis", "Grid", "Row", "median", "present"]

ABSENT = math.nan
"""A cell without a sample. Absent is not zero."""

# Buckets for up to so many rows: as many as a chart has pixels, fewer where the page would grow too large.
WIDTHS = ((16, 1000), (128, 480), (400, 300), (1000, 180), (4000, 60))
FEWEST = 30


@dataclasses.dataclass(frozen=True)
class Row:
    """A host, or a device of a host."""

    host: str
    device: str = ""

    def __str__(self) -> str:
        return f"{self.host} {self.device}".rstrip()


@dataclasses.dataclass(frozen=True)
class Axis:
    """Time cut into buckets of equal width; the first is centred on the first beat, so that jitter moves no sample."""

    start_ns: int
    width_ns: int
    buckets: int
    beats: int

    @classmethod
    def of(cls, first_ns: int, last_ns: int, interval_ns: int, rows: int) -> Self:
        """Buckets of whole beats: one beat each where there is room, else as few beats as fit."""
        beats = max(1, round((last_ns - first_ns) / interval_ns) + 1)
        most = next((width for limit, width in WIDTHS if rows <= limit), FEWEST)
        per_bucket = -(-beats // most)
        return cls(first_ns - interval_ns // 2, per_bucket * interval_ns, -(-beats // per_bucket), per_bucket)

    def at(self, bucket: int) -> int:
        """When a bucket begins, in nanoseconds."""
        return self.start_ns + bucket * self.width_ns


@dataclasses.dataclass
class Grid:
    """The cells of one metric; `low`, `mean` and `high` hold a row each, `ABSENT` where there is no sample."""

    axis: Axis
    rows: list[Row]
    low: list[array[float]]
    mean: list[array[float]]
    high: list[array[float]]

    @classmethod
    def empty(cls, axis: Axis, rows: Sequence[Row]) -> Self:
        """All absent."""

        def blank() -> list[array[float]]:
            return [array("d", [ABSENT]) * axis.buckets for _ in rows]

        return cls(axis, list(rows), blank(), blank(), blank())

    def select(self, indices: Sequence[int]) -> Grid:
        """Only these rows."""
        rows = [self.rows[i] for i in indices]
        low, mean, high = ([plane[i] for i in indices] for plane in (self.low, self.mean, self.high))
        return Grid(self.axis, rows, low, mean, high)

    @property
    def extent(self) -> tuple[float, float] | None:
        """The least and the greatest sample; None where there is none."""
        lows = [min(known) for known in map(present, self.low) if known]
        highs = [max(known) for known in map(present, self.high) if known]
        return (min(lows), max(highs)) if lows else None


def present(values: Iterable[float]) -> list[float]:
    """The values that are there."""
    return [value for value in values if not math.isnan(value)]


def median(ordered: Sequence[float]) -> float:
    """The middle of sorted numbers."""
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
