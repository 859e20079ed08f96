"""Which charts to show first: where somebody stands out, then where most happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rollbook.metrics.catalogue import Metric
from rollbook.metrics.grid import Grid, present

__all__ = ["most_telling"]

SHOWN = 5
EVERY = 7  # of the cells, to judge how much happens: a prime, so that no rhythm of the run is missed


def most_telling(grids: Sequence[tuple[Metric, Grid]], strengths: Mapping[str, float]) -> list[str]:
    """The columns of the five most telling charts. `strengths` says how strongly somebody stands out in each."""

    def worth(item: tuple[Metric, Grid]) -> tuple[float, float]:
        metric, grid = item
        return strengths.get(metric.column, 0.0), _liveliness(metric, grid)

    return [metric.column for metric, _ in sorted(grids, key=worth, reverse=True)[:SHOWN]]


def _liveliness(metric: Metric, grid: Grid) -> float:
    """How far the values reach, as a share of what would be much for this metric."""
    values = sorted(value for line in grid.mean for value in present(line[::EVERY]))
    if not values:
        return 0.0
    reach = values[int(0.95 * (len(values) - 1))] - values[int(0.05 * (len(values) - 1))]
    return reach / max(metric.ceiling or 0.0, abs(values[-1]), 20 * metric.judge.floor)
