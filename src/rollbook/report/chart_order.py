"""Which charts come first: those of outliers, then those in which most happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from rollbook.metrics.grid import Grid, present
from rollbook.metrics.metric import Metric

__all__ = ["highlights"]

HIGHLIGHTS = 6
MAX_OF_A_PART = 2
"""Charts of one kind of device, or of one table: throughput, requests and utilisation of disks move together."""
FEW = 40  # samples of a host below which its smallest and largest value count, not the 5th and 95th percentile
OTHERS = 0.6  # weight of metrics that are not part of a run's summary: memory and load follow what the run does
ROUNDED = 0.05  # differences below do not change the order, so that runs that are alike begin with the same charts


def highlights(grids: Sequence[tuple[Metric, Grid]], outliers: Sequence[str]) -> list[str]:
    """The names of the six metrics to show first; `outliers` are those in which hosts differ, the strongest first.

    The others come by how much a typical host's values vary; of metrics that vary alike, the first in the catalogue.
    """
    by_name = {metric.name: metric for metric, _ in grids}
    first = [name for name in outliers if name in by_name]
    activity = {metric.name: _activity(metric, grid) for metric, grid in grids if metric.name not in first}
    chosen, parts = first[:HIGHLIGHTS], Counter(by_name[name].part for name in first[:HIGHLIGHTS])
    for name in sorted(activity, key=lambda name: -activity[name]):
        part = by_name[name].part
        if len(chosen) < HIGHLIGHTS and activity[name] > 0 and parts[part] < MAX_OF_A_PART:
            chosen.append(name)
            parts[part] += 1
    return chosen + [name for name in activity if name not in chosen][: HIGHLIGHTS - len(chosen)]


def _activity(metric: Metric, grid: Grid) -> float:
    """The range of a typical host's values, as a share of what is much for this metric, rounded."""
    ranges, most = [], 0.0
    for line in grid.mean:
        values = sorted(present(line))
        if not values:
            continue
        edge = 0 if len(values) < FEW else len(values) // 20
        ranges.append(values[-1 - edge] - values[edge])
        most = max(most, abs(values[-1]))
    if not ranges:
        return 0.0
    share = median(ranges) / max(metric.ceiling or 0.0, most, 20 * metric.negligible, 1e-9)
    return round(share * (1.0 if metric.summary else OTHERS) / ROUNDED) * ROUNDED
