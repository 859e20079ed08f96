"""The first charts: those in which most happens, the same for runs that are alike."""

from __future__ import annotations

import random
from array import array

import pytest

from rollbook.metrics import catalogue
from rollbook.metrics.grid import Axis, Grid, Row, Scale
from rollbook.metrics.metric import Metric
from rollbook.report.chart_order import highlights

SAMPLES = 16
LEVELS = {"load_1min": 3.0, "mem_available": 8e9, "page_cache": 2e9, "cpu_busy": 20.0, "disk_write": 0.0, "net_rx": 1e4}
BUSY = {"disk_write": 2.5e9}


def grids(seed: int, at: int) -> list[tuple[Metric, Grid]]:
    """A short run: everything is at its level but for some noise, and in one sample the disks are busy."""
    noise, found = random.Random(seed), []
    for name, level in LEVELS.items():
        values = [level * (1 + noise.uniform(-0.02, 0.02)) for _ in range(SAMPLES)]
        values[at] += BUSY.get(name, 0.0)
        extent = (min(values), max(values))
        axis = Axis(0, 10**9, SAMPLES, 1)
        found.append(
            (catalogue.load()[name], Grid(axis, [Row("a")], extent, Scale.of(*extent), [array("d", values)], []))
        )
    return found


@pytest.mark.parametrize("at", range(SAMPLES))
def test_every_sample_counts(at: int) -> None:
    """A single busy sample counts, wherever it is, and noise does not change the order."""
    chosen = {tuple(highlights(grids(seed, at), [])) for seed in range(10)}
    assert len(chosen) == 1
    assert chosen.pop()[0] == "disk_write"


def test_outliers_come_first() -> None:
    """Metrics with outliers come first, however much others vary."""
    assert highlights(grids(1, 4), ["net_rx", "gone"])[:2] == ["net_rx", "disk_write"]
