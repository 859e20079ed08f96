"""Intervals and verdicts: they have the stated confidence on realistic noise, and never contradict each other."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.comparison import statistics
from rollbook.comparison.statistics import change_of, middle_of, spread_of

RUNS = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=8)
Noise = Callable[[random.Random], float]


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 4.0, 40.0])
def test_probabilities_of_students_distribution(t: float) -> None:
    """One, two and four degrees of freedom have closed forms; many approach the normal distribution."""
    assert statistics._tails(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), abs=1e-12)
    assert statistics._tails(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), abs=1e-12)
    x = t / math.sqrt(4 + t * t)
    assert statistics._tails(-t, 4) == pytest.approx(1 - x * (3 - x * x) / 2, abs=1e-12)
    assert statistics._tails(t, 10_001) == pytest.approx(math.erfc(t / math.sqrt(2)), abs=1e-4)


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.706), (2, 4.303), (4, 2.776), (8, 2.306), (30, 2.042)])
def test_quantiles_of_students_distribution(freedom: int, quantile: float) -> None:
    """Quantiles equal those of printed tables."""
    assert statistics._quantile(freedom) == pytest.approx(quantile, abs=5e-4)


@pytest.mark.parametrize(
    ("before", "after", "better", "history", "verdict"),
    [
        ([100, 101, 102, 100, 101], [80, 81, 79, 80, 82], "high", None, "worse"),
        ([100, 101, 102, 100, 101], [80, 81, 79, 80, 82], "low", None, "better"),
        ([100, 101, 102, 100, 101], [80, 81, 79, 80, 82], "", None, "differs"),
        ([100, 101, 102, 100, 101], [101, 100, 102, 101, 100], "high", None, "within noise"),
        ([100, 140, 80, 100, 130], [120, 90, 150, 70, 110], "high", None, "cannot tell"),
        ([100], [90], "high", None, "cannot tell"),
        ([100], [90], "high", 0.02, "worse"),
        ([100], [97], "high", 0.02, "within noise"),
        ([100, 110], [90, 80], "high", None, "cannot tell"),
        ([100, 100], [80, 80], "high", None, "worse"),
        ([5, 5, 5], [5, 5], "high", None, "identical"),
        ([0, 1, 2], [1, 2, 3], "high", None, "cannot tell"),
        ([0, 0, 0], [5, 6, 5], "low", None, "worse"),
        ([0, 0, 0], [5, 6, 5], "", None, "differs"),
        ([0], [5], "low", None, "cannot tell"),
        ([1e-300, 1e300], [1e300, 1e-300], "high", None, "cannot tell"),
    ],
)
def test_verdicts(before: list[float], after: list[float], better: str, history: float | None, verdict: str) -> None:
    """Better, worse and differs need an interval clear of zero; a single run needs the spread of earlier ones."""
    assert change_of(before, after, better, history=history).verdict == verdict  # type: ignore[arg-type]


def test_the_floor_can_be_lowered() -> None:
    """A small difference that is certain is called if the floor is below it."""
    before, after = [100.00, 100.01, 99.99], [100.50, 100.51, 100.49]
    assert change_of(before, after, "high").verdict == "within noise"
    assert change_of(before, after, "high", floor=0.002).verdict == "better"
    assert change_of(before, [100.0, 100.02, 99.98], "high", floor=0).verdict == "cannot tell"


def test_two_runs_are_only_likely() -> None:
    """The verdict on two runs each is "likely", because both may be off in the same way; on three it is not."""
    assert change_of([100, 101], [50, 51], "high").reason == "likely"
    assert change_of([100, 101, 99], [80, 81, 79], "high").reason == ""


@given(RUNS, RUNS)
def test_interval_and_verdict_agree(before: list[float], after: list[float]) -> None:
    """A direction is called only if the whole interval has it, and the order of runs does not matter."""
    found = change_of(before, after, "high")
    assert found.verdict == change_of(before[::-1], after[::-1], "high").verdict
    assert found.change == pytest.approx(middle_of(after) / middle_of(before) - 1, rel=1e-6, abs=1e-9)
    if found.low is not None and found.high is not None and found.change is not None:
        assert found.low <= found.change <= found.high
        if found.verdict in ("better", "worse"):
            assert found.p is not None
            assert found.p < 0.05
            assert (found.low > 0.01) if found.verdict == "better" else (found.high < -0.01)


def normal(width: float) -> Noise:
    """Normal noise with this standard deviation."""
    return lambda source: source.gauss(0, width)


def odd(source: random.Random) -> float:
    """One run in ten is five times noisier."""
    return source.gauss(0, 0.15 if source.random() < 0.1 else 0.03)


def slow(source: random.Random) -> float:
    """One run in ten loses up to 30 %."""
    return source.gauss(0, 0.01) + (math.log(1 - 0.3 * source.random()) if source.random() < 0.1 else 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [(normal(0.01), normal(0.01)), (normal(0.003), normal(0.023)), (odd, odd), (slow, slow)],
    ids=["equal", "unequal", "odd runs", "slow runs"],
)
@pytest.mark.parametrize(("ones", "twos"), [(2, 2), (3, 3), (5, 5), (8, 8), (3, 8)])
def test_false_alarms_and_coverage(before: Noise, after: Noise, ones: int, twos: int) -> None:
    """Equal groups are rarely called different, even with unequal noise; the interval contains the true change."""
    source = random.Random(7)
    calls, covered, rounds = Counter[str](), 0, 300
    for _ in range(rounds):
        a = [100 * math.exp(before(source)) for _ in range(ones)]
        b = [100 * math.exp(after(source)) for _ in range(twos)]
        calls[change_of(a, b, "high").verdict] += 1
        found = change_of(a, [0.9 * value for value in b], "high")
        covered += found.low is not None and found.high is not None and found.low <= -0.1 <= found.high
    assert calls["better"] + calls["worse"] < 0.05 * rounds
    assert covered > 0.93 * rounds


def test_equal_groups_are_noise() -> None:
    """Most equal groups of five or eight runs are within noise, even if runs vary by several percent."""
    source = random.Random(3)
    for runs, least in ((5, 0.75), (8, 0.95)):
        groups = [[math.exp(source.gauss(0, 0.03)) for _ in range(runs)] for _ in range(600)]
        verdicts = Counter(change_of(a, b, "high").verdict for a, b in zip(groups[::2], groups[1::2], strict=True))
        assert verdicts["within noise"] > least * 300


def test_spread_ignores_an_odd_run() -> None:
    """The usual spread is that of most runs, and unknown for fewer than five."""
    assert spread_of([100, 101, 99, 100]) is None
    assert spread_of([100, 101, 99, 100, 500]) == pytest.approx(0.0148, abs=1e-3)
