"""What the page draws: each metric with its unit, where it comes from, what counts as odd, and how it is called."""

from __future__ import annotations

import dataclasses

from rollbook.report.outliers import Judge

__all__ = ["METRICS", "Metric"]

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Metric:
    """One chart. `column` is a column of the view `rates`; `device` is the same in `view`, one row per device.

    `trouble` marks what hurts where it is high, worth a word even without peers to compare with. `scarce` marks
    what hurts where it is low: then the least sample of a cell is shown, not the greatest.
    """

    id: str
    title: str
    unit: str
    group: str
    about: str
    judge: Judge
    column: str
    view: str = ""
    device: str = ""
    trouble: bool = False
    scarce: bool = False
    ceiling: float | None = None


def _percent(floor: float = 5.0, direction: str = "high") -> Judge:
    return Judge(direction, floor)  # type: ignore[arg-type]
