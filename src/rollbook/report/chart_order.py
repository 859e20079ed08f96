"""Which charts come first: those of outliers, then those in which most happens."""

from __future__ import annotations

from collections.abc import Sequence

from rollbook.metrics.grid import Grid, present
from rollbook.metrics.metric import Metric

__all__ = ["highlights"]

SHOWN = 5
ENOUGH = 20_000  # values to judge a metric by; of more, some are taken at even distances


def highlights(grids: Sequence[tuple[Metric, Grid]], outliers: Sequence[str]) -> list[str]:
    """The names of the five metrics to show first; `outliers` are those in which hosts differ, the strongest first."""

    def worth(item: tuple[Metric, Grid]) -> tuple[int, float]:
        metric, grid = item
        return (-outliers.index(metric.name) if metric.name in outliers else -len(outliers)), _activity(metric, grid)

    return [metric.name for metric, _ in sorted(grids, key=worth, reverse=True)[:SHOWN]]


def _activity(metric: Metric, grid: Grid) -> float:
    """The range of the values, as a share of what is much for this metric."""
    step = max(1, len(grid.mean) * grid.axis.buckets // ENOUGH)
    values = sorted(value for line in grid.mean for value in present(line[::step]))
    if not values:
        return 0.0
    reach = values[int(0.95 * (len(values) - 1))] - values[int(0.05 * (len(values) - 1))]
    return reach / max(metric.ceiling or 0.0, abs(values[-1]), 20 * metric.negligible, 1e-9)
