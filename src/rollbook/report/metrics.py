"""What the page draws: each metric with its unit, where it comes from, what counts as odd, and how it is called."""

from __future__ import annotations

import dataclasses

from rollbook.report.outliers import Judge

__all__ = ["METRICS", "Metric"]

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Metric:
    """One chart, from a column of the view `rates`; `devices` is the view with the same column for each device.

    `trouble` marks what hurts where it is high: worth a word even without peers to compare with. `scarce` marks
    what hurts where it is low: then the least sample of a cell is drawn, not the greatest. `ceiling` is the most
    there can be, where that is worth seeing.
    """

    column: str
    title: str
    unit: str
    group: str
    about: str
    judge: Judge
    devices: str = ""
    trouble: bool = False
    scarce: bool = False
    ceiling: float | None = None


HIGH_SHARE = Judge("high", 2.0)
SHARE = Judge("both", 5.0)
FLOW = Judge("both", 2.0 * MIB)

METRICS = (
    Metric("cpu_busy", "CPU busy", "%", "Processor", "Time not idle, share of all CPUs", SHARE, ceiling=100.0),
)
