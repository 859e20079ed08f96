"""Whether two groups of runs differ: the ratio of their values, an interval, and a verdict.

The unit is one run; samples inside a run are not repeats. The change is the ratio of the geometric means. Its interval
is that of Student's t on the logarithms of the values, with separate variances and the degrees of freedom of the side
with fewer runs: it contains the true change in at least 95 % of all cases, however different the noise and the numbers
of runs are. (The degrees of freedom of Welch and Satterthwaite give less than that for few runs.) Nothing is drawn at
random: the same runs always give the same answer, and interval, `p` and verdict cannot disagree.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

from rollbook.metrics.outliers import TO_SIGMA

__all__ = ["CALLED", "FLOOR", "Better", "Change", "Verdict", "change_of", "middle_of", "spread_of"]

Better = Literal["high", "low", ""]
"""The direction that is better; empty if it is not known."""
Verdict = Literal["better", "worse", "differs", "negligible", "within noise", "cannot tell", "identical"]
CALLED: tuple[Verdict, ...] = ("better", "worse", "differs")
"""The verdicts that state a difference."""

FLOOR = 0.01  # default of the share below which differences do not matter, however certain
NOISE_CAP = 0.10  # repeats that differ by more than this do not make a difference of that size noise
REPEATABILITY = 1.96 * math.sqrt(2)  # deviations by which two single runs differ in 5 % of all cases (ISO 5725)
LEVEL = 0.95
TESTED = 2  # runs per side from which there is an interval
CERTAIN = (
    3  # runs per side from which a difference is more than likely: two that agree may have the same cause of error
)
MOST = 101  # runs per side; the estimate of how many are needed ends here
HISTORY_FACTOR = 3.0  # a single run differs if it is this many times the usual spread away


class Change(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One value of a side against the same value of the first side, as shares: 0.08 is 8 % more.

    `low` and `high` bound the change with `confidence`; single runs have no interval. `p` is the two-sided probability
    of such a difference by chance. `needed` is about how many runs per side would decide a change that cannot be told.
    """

    change: float | None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    p: float | None = None
    verdict: Verdict
    reason: str = ""
    needed: int | None = None


def change_of(
    before: Sequence[float],
    after: Sequence[float],
    better: Better = "",
    *,
    floor: float = FLOOR,
    history: float | None = None,
) -> Change:
    """Compare the values of two groups of runs.

    `floor` is the share below which a difference does not matter, `history` the usual spread of this value between
    equal runs, if it is known.
    """
    if len(set(before) | set(after)) == 1:
        return Change(change=0.0, verdict="identical")
    fewest = min(len(before), len(after))
    if min(*before, *after) <= 0:
        return _without_ratio(before, after, better)
    ones, twos = [math.log(value) for value in before], [math.log(value) for value in after]
    floor = max(floor, history or 0.0)
    if fewest < TESTED:
        middle = _share(statistics.fmean(twos) - statistics.fmean(ones))
        return _untested(middle, better, (len(before), len(after)), floor, history)
    difference, reach, p = _difference(ones, twos)
    middle, low, high = _share(difference), _share(difference - reach), _share(difference + reach)
    found = Change(change=middle, low=low, high=high, confidence=LEVEL, p=p, verdict="cannot tell")
    deviation = math.sqrt((statistics.variance(ones) + statistics.variance(twos)) / 2)
    bound = max(floor, min(REPEATABILITY * deviation, NOISE_CAP))
    if low > floor or high < -floor:
        found.verdict, found.reason = _direction(middle, better), "" if fewest >= CERTAIN else "likely"
    elif -bound <= low and high <= bound:
        found.verdict, found.reason = "within noise", f"less than {_percent(max(-low, high, 0))}"
    else:
        found.needed = _needed(fewest, (low, middle, high), floor)
    return found


def middle_of(values: Sequence[float]) -> float:
    """The value of a group of runs: the geometric mean, whose ratio is the change; the mean if one is not positive."""
    return statistics.fmean(values) if min(values) <= 0 else statistics.geometric_mean(values)


def spread_of(values: Sequence[float]) -> float | None:
    """The robust relative spread of values of equal runs; None for fewer than five."""
    if len(values) < 5 or (middle := statistics.median(values)) <= 0:
        return None
    return TO_SIGMA * statistics.median(abs(value - middle) for value in values) / middle


def _without_ratio(before: Sequence[float], after: Sequence[float], better: Better) -> Change:
    """Values that are zero or negative have a direction, but no ratio."""
    found = Change(change=None, verdict="cannot tell", reason="no ratio: a value is not positive")
    if min(len(before), len(after)) >= CERTAIN:
        difference, reach, found.p = _difference(before, after)
        if abs(difference) > reach:
            found.verdict = _direction(difference, better)
    return found


def _difference(ones: Sequence[float], twos: Sequence[float]) -> tuple[float, float, float]:
    """The difference of the means, how far its interval reaches on both sides, and the two-sided probability."""
    difference = statistics.fmean(twos) - statistics.fmean(ones)
    error = math.sqrt(sum(statistics.variance(side) / len(side) for side in (ones, twos)))
    if error == 0:
        return difference, 0.0, 0.0 if difference else 1.0
    freedom = min(len(ones), len(twos)) - 1
    return difference, _quantile(freedom) * error, _tails(difference / error, freedom)


def _share(logarithm: float) -> float:
    """The change that a difference of logarithms means; bounded, because a document has no infinity."""
    return math.expm1(min(logarithm, 300.0))


@functools.cache
def _quantile(freedom: int) -> float:
    """The bound of the central 95 % of Student's distribution."""
    low, high = 1.0, 13.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if _tails(middle, freedom) > 1 - LEVEL else (low, middle)
    return high


def _tails(t: float, freedom: int) -> float:
    """The probability that Student's t is further from zero than this: a finite series for whole degrees of freedom."""
    angle = math.atan(abs(t) / math.sqrt(freedom))
    odd, square = freedom % 2, math.cos(angle) ** 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= square * (step - 1) / step
    inside = math.sin(angle) * total
    return max(0.0, 1 - (2 / math.pi * (angle + inside) if odd else inside))


def _untested(change: float, better: Better, counts: tuple[int, int], floor: float, history: float | None) -> Change:
    """A single run on a side: only the usual spread of earlier runs can tell noise from a difference."""
    before, after = counts
    found = Change(change=change, verdict="cannot tell")
    runs = "one run each" if before == after else f"{before} and {after} runs"
    if history is None:
        found.reason, found.needed = f"{runs}: noise unknown", 5
        return found
    limit = max(floor, HISTORY_FACTOR * history)
    found.verdict = _direction(change, better) if abs(change) > limit else "within noise"
    found.reason = f"{runs}; earlier runs vary by {_percent(history)}"
    return found


def _direction(change: float, better: Better) -> Verdict:
    if not better:
        return "differs"
    return "better" if (change > 0) == (better == "high") else "worse"


def _needed(count: int, interval: tuple[float, float, float], floor: float) -> int:
    """The runs per side from which the interval would be narrow enough, if they vary as these do, at most `MOST`."""
    low, middle, high = interval
    wanted = max(abs(abs(middle) - floor), floor / 2)
    single = (high - low) / 2 / _quantile(count - 1) * math.sqrt(count)
    enough = (runs for runs in range(count + 1, MOST) if single * _quantile(runs - 1) / math.sqrt(runs) <= wanted)
    return next(enough, MOST)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
