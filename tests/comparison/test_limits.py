"""The limit of `--fail-on`: broken, kept, or not to be told, which never passes silently."""

from __future__ import annotations

import pytest

from rollbook.comparison.limits import judge
from rollbook.comparison.model import Comparison, Row, SideSummary
from rollbook.comparison.page import overall_verdict
from rollbook.comparison.statistics import change_of

QUIET, NOISY = [100.0, 100.1, 99.9, 100.0, 100.1], [80.0, 120.0, 95.0, 105.0, 100.0]


def comparison(before: list[float], after: list[float], *, main: bool = True, failed: int = 0) -> Comparison:
    """A comparison of one result, of which more is better."""
    change = change_of(before, after, "high")
    row = Row(kind="result", name="x", title="x", better="high", main=main, values=[before, after], changes=[change])
    sides = [
        SideSummary(label=label, records=["r"] * 5, hosts=[], type="fio", command="", failed=count)
        for label, count in (("A", 0), ("B", failed))
    ]
    return Comparison(sides=sides, phase="run", rows=[row], facts=[], notes=[])


@pytest.mark.parametrize(
    ("before", "after", "slower", "unsure"),
    [
        (QUIET, [0.9 * value for value in QUIET], 1, 0),
        (QUIET, [0.97 * value for value in QUIET], 0, 0),
        (QUIET, [1.2 * value for value in QUIET], 0, 0),
        (QUIET, QUIET[::-1], 0, 0),
        (QUIET, NOISY, 0, 1),
        (NOISY, [0.9 * value for value in NOISY], 0, 1),
        ([100.0], [97.0], 0, 1),
        ([100.0], [92.0], 0, 1),
        ([100.0], [85.0], 1, 0),
        ([100.0], [100.0], 0, 0),
        ([5.0, 5.0, 5.0], [0.0, 0.0, 0.0], 1, 0),
        ([5.0], [0.0], 0, 1),
    ],
)
def test_a_limit_of_five_percent(before: list[float], after: list[float], slower: int, unsure: int) -> None:
    """It is kept only if the whole interval keeps it, or all values are equal."""
    found = judge(comparison(before, after), 0.05)
    assert (len(found.slower), len(found.unsure)) == (slower, unsure)


def test_the_page_does_not_call_missing_results_noise() -> None:
    """Without main results there is no verdict on them."""
    assert overall_verdict(comparison(QUIET, QUIET[::-1]), 0) == "within noise"
    assert overall_verdict(comparison(QUIET, [0.9 * value for value in QUIET]), 0) == "worse"
    assert overall_verdict(comparison(QUIET, QUIET, main=False), 0) == "cannot tell"


def test_what_cannot_be_judged_does_not_pass() -> None:
    """Runs that failed, results that a side lacks, and no result at all."""
    assert judge(comparison(QUIET, QUIET[::-1], failed=2), 0.05).unsure == ["B: 2 of 5 runs failed"]
    assert judge(comparison(QUIET, QUIET, main=False), 0.05).unsure
    lacking = comparison(QUIET, QUIET)
    lacking.sides[1].lacks = ["job: iops"]
    assert judge(lacking, 0.05).unsure == ["B: there is no job: iops"]
