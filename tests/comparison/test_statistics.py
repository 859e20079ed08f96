"""Intervals and verdicts: exact for few runs, and never in contradiction to each other."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.comparison.statistics import change_of, interval_rank, spread_of

RUNS = st.lists(st.floats(1.0, 1e6), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("runs", "rank", "confidence"),
    [(3, 1, 0.9), (4, 1, 0.971), (5, 3, 0.968), (10, 24, 0.957), (20, 128, 0.951)],
)
def test_ranks_of_the_exact_interval(runs: int, rank: int, confidence: float) -> None:
    """The published ranks of the Mann-Whitney interval."""
    found = interval_rank(runs, runs)
    assert (found[0], round(found[1], 3)) == (rank, confidence)


def test_confidence_counts_all_orders() -> None:
    """For 4 and 3 runs, the confidence is the share of all orders of equal runs whose interval contains no change."""
    rank, confidence = interval_rank(4, 3)
    covered = []
    for chosen in itertools.combinations(range(1, 8), 3):
        others = [value for value in range(1, 8) if value not in chosen]
        differences = sorted(after - before for before in others for after in chosen)
        covered.append(differences[rank - 1] <= 0 <= differences[-rank])
    assert sum(covered) / math.comb(7, 3) == pytest.approx(confidence)


def test_many_runs_use_the_approximation_without_a_step() -> None:
    """Just above the exact part the rank is that of the exact part, within one percent."""
    exact, above = interval_rank(25, 25)[0], interval_rank(26, 26)[0]
    assert exact < above < exact * 1.13


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
        ([100, 101], [50, 51], "high", None, "cannot tell"),
        ([5, 5, 5], [5, 5], "high", None, "identical"),
        ([0, 1, 2], [1, 2, 3], "high", None, "cannot tell"),
    ],
)
def test_verdicts(before: list[float], after: list[float], better: str, history: float | None, verdict: str) -> None:
    """Better, worse and differs need an interval clear of zero; one or two runs need the spread of earlier ones."""
    assert change_of(before, after, better, history=history).verdict == verdict  # type: ignore[arg-type]


def test_three_runs_are_only_likely() -> None:
    """Three runs a side cannot reach 95 %."""
    found = change_of([100, 101, 99], [80, 81, 79], "high")
    assert (found.verdict, found.reason) == ("worse", "likely")
    assert found.confidence == pytest.approx(0.9)


@given(RUNS, RUNS)
def test_interval_and_verdict_agree(before: list[float], after: list[float]) -> None:
    """A direction is called only if the whole interval has it, and the order of runs does not matter."""
    found = change_of(before, after, "high")
    assert found == change_of(before[::-1], after[::-1], "high")
    if found.low is not None and found.high is not None and found.change is not None:
        assert found.low <= found.change <= found.high
        if found.verdict in ("better", "worse"):
            assert min(len(before), len(after)) >= 3
            assert (found.low > 0.01) if found.verdict == "better" else (found.high < -0.01)


@pytest.mark.parametrize(("noise", "odd"), [(0.01, 0.0), (0.03, 0.1)])
def test_false_alarms_and_coverage(noise: float, odd: float) -> None:
    """Equal groups of five are seldom called different, also with odd runs; the true change is inside the interval."""
    source = random.Random(7)
    calls, covered, rounds = Counter[str](), 0, 2000

    def group(middle: float) -> list[float]:
        return [middle * (1 + source.gauss(0, noise * (5 if source.random() < odd else 1))) for _ in range(5)]

    for _ in range(rounds):
        calls[change_of(group(100), group(100), "high").verdict] += 1
        found = change_of(group(100), group(90), "high")
        covered += found.low is not None and found.high is not None and found.low <= -0.1 <= found.high
    assert calls["better"] + calls["worse"] < 0.04 * rounds
    assert covered > 0.94 * rounds


def test_spread_ignores_an_odd_run() -> None:
    """The usual spread is that of most runs, and unknown for fewer than five."""
    assert spread_of([100, 101, 99, 100]) is None
    assert spread_of([100, 101, 99, 100, 500]) == pytest.approx(0.0148, abs=1e-3)
