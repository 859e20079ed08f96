"""The limit of `--fail-on`: exceeded, kept, or unsure, which is never a pass."""

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
    """The limit is kept only if the whole interval is within it, or all values are equal."""
    found = judge(comparison(before, after), 0.05)
    assert (len(found.slower), len(found.unsure)) == (slower, unsure)


def test_the_page_does_not_call_missing_results_noise() -> None:
    """Without main results, the verdict of the page is "cannot tell"."""
    assert overall_verdict(comparison(QUIET, QUIET[::-1]), 0) == "within noise"
    assert overall_verdict(comparison(QUIET, [0.9 * value for value in QUIET]), 0) == "worse"
    assert overall_verdict(comparison(QUIET, QUIET, main=False), 0) == "cannot tell"


def test_unsure_results_do_not_pass() -> None:
    """Failed runs, results that a side lacks, and comparisons without main results are unsure."""
    assert judge(comparison(QUIET, QUIET[::-1], failed=2), 0.05).unsure == ["B: 2 of 5 runs failed"]
    assert judge(comparison(QUIET, QUIET, main=False), 0.05).unsure
    lacking = comparison(QUIET, QUIET)
    lacking.sides[1].lacks = ["job: iops"]
    assert judge(lacking, 0.05).unsure == ["B: there is no job: iops"]
