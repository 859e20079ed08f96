"""Outliers: known outliers are found at the right place, and noise is not an outlier."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence

import pytest

from rollbook.metrics.outliers import Direction, Stretch, Threshold, against_peers, over_time

BUCKETS = 200


@dataclasses.dataclass(frozen=True)
class Case:
    """Rows of noise around a common curve; the last rows are multiplied by a factor for a while."""

    rows: int = 32
    noise: float = 0.1
    factor: float = 1.0
    first: int = 40
    last: int = 120
    threshold: Threshold = dataclasses.field(default_factory=lambda: Threshold("both", 0.5))
    found: bool = True
    tail: float = 0.0  # fraction of samples that are spikes of twenty times their value
    absent: float = 0.0  # fraction of samples that are missing
    odd: int = 1  # rows that differ
    edge: int = 3  # tolerance for the first and the last bucket


def make_rows(case: Case, seed: int) -> list[list[float]]:
    """The rows; those that differ are the last ones."""
    random_ = random.Random(seed)
    course = [10 + 5 * math.sin(at / 15) + (30 if at % 50 > 40 else 0) for at in range(BUCKETS)]
    rows = []
    for row in range(case.rows):
        own = random_.uniform(1 - case.noise / 4, 1 + case.noise / 4)
        line = []
        for at, usual in enumerate(course):
            value = usual * own * random_.lognormvariate(0, case.noise)
            if row >= case.rows - case.odd and case.first <= at <= case.last:
                value *= case.factor
            if random_.random() < case.tail:
                value *= 20
            line.append(math.nan if random_.random() < case.absent else value)
        rows.append(line)
    return rows


CASES = {
    "far above": Case(factor=9.0),
    "twice, in little noise": Case(factor=2.0),
    "a third": Case(factor=0.33),
    "for a short while": Case(factor=4.0, first=100, last=106),
    "the whole run": Case(factor=3.0, first=0, last=BUCKETS - 1),
    "among few": Case(rows=6, factor=4.0),
    "with samples missing": Case(factor=4.0, absent=0.3, edge=8),
    "among spikes": Case(factor=5.0, tail=0.03),
    "many rows": Case(rows=300, factor=3.0),
    "noise": Case(found=False),
    "strong noise": Case(noise=0.5, found=False),
    "spikes on all rows": Case(tail=0.05, found=False),
    "strong noise and spikes on many rows": Case(rows=300, noise=0.4, tail=0.02, found=False),
    "a little above": Case(factor=1.2, found=False),
    "one spike": Case(factor=50.0, first=90, last=91, found=False),
    "below where only high matters": Case(factor=0.2, threshold=Threshold("high", 0.5), found=False),
    "too few rows": Case(rows=4, factor=9.0, found=False),
    "negligible difference": Case(factor=9.0, threshold=Threshold("both", 1000.0), found=False),
    "half of the rows are another group": Case(factor=4.0, odd=14, found=False),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", CASES)
def test_against_peers(name: str, seed: int) -> None:
    """Each case finds its one odd row, or nothing."""
    case = CASES[name]
    found = against_peers(make_rows(case, seed), case.threshold)
    assert [stretch.row for stretch in found] == ([case.rows - 1] if case.found else [])
    for stretch in found:
        assert stretch.peers == case.rows - 1
        assert abs(stretch.first - case.first) <= case.edge
        assert abs(stretch.last - case.last) <= case.edge
        assert stretch.value / stretch.usual == pytest.approx(case.factor, rel=0.4)


def test_strongest_first() -> None:
    """The row that differs most is first."""
    rows = make_rows(Case(rows=20), 1)
    rows[3] = [3 * value for value in rows[3]]
    rows[7] = [9 * value for value in rows[7]]
    assert [stretch.row for stretch in against_peers(rows, Threshold("high", 0.5))] == [7, 3]


def test_equal_rows_have_no_outliers() -> None:
    """Rows that are all equal have no outliers, even if no difference is negligible."""
    assert against_peers([[1.0] * 50] * 8, Threshold("both", 0.0)) == []


def test_outlier_around_lost_samples() -> None:
    """A row whose values are far off on both sides of a hole is found, although the middle has no value."""
    rows = [[1.0] * 30 for _ in range(8)]
    rows[5][11:19] = [9.0, 9.0, math.nan, math.nan, math.nan, 9.0, 9.0, 9.0]
    [found] = against_peers(rows, Threshold("both", 0.1))
    assert (found.row, found.first, found.last, found.value, found.usual) == (5, 10, 19, 9.0, 1.0)


def test_rows_without_any_sample() -> None:
    """Rows of missing samples have no outliers."""
    assert against_peers([[math.nan] * 30] * 8, Threshold("both", 1.0)) == []


OVER_TIME: dict[str, tuple[Direction, float, bool]] = {
    "high for a while": ("high", 6.0, True),
    "low where only high matters": ("high", 0.1, False),
    "calm": ("both", 1.0, False),
}


@pytest.mark.parametrize("name", OVER_TIME)
def test_over_time(name: str) -> None:
    """A single row is compared with its own median."""
    direction, factor, expected = OVER_TIME[name]
    found = _over_time(direction, factor)
    assert bool(found) == expected
    for stretch in found:
        assert (stretch.row, stretch.peers) == (2, 0)
        assert stretch.value / stretch.usual == pytest.approx(factor, rel=0.2)


def _over_time(direction: Direction, factor: float) -> Sequence[Stretch]:
    random_ = random.Random(3)
    line = [10 * random_.lognormvariate(0, 0.1) * (factor if 100 <= at < 130 else 1) for at in range(BUCKETS)]
    return over_time(2, line, Threshold(direction, 0.5))
