"""Whether two groups of runs differ: the ratio of their values, an exact interval, and a verdict.

The unit is one run; samples inside a run are not repeats. From three runs a side the change is the Hodges-Lehmann
ratio, the median of all ratios B/A; its interval is the exact one of the Mann-Whitney test: the r-th smallest to the
r-th largest ratio. No distribution is assumed and nothing is drawn at random: interval and verdict cannot disagree, and
the same runs always give the same answer.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import Literal

import msgspec

from rollbook.comparison.results import Better

__all__ = ["FLOOR", "Change", "Verdict", "change_of", "interval_rank", "spread_of"]

Verdict = Literal["better", "worse", "differs", "within noise", "cannot tell", "identical"]

FLOOR = 0.01  # differences below this share do not matter, however certain
NOISE_CAP = 0.10  # repeats that differ by more than this do not make a difference of that size noise
LEVEL = 0.95
EXACT = 25  # runs a side up to which the distribution of ranks is exact; above, it is approximated as normal
TESTED = 3  # runs a side from which there is an interval
HISTORY_FACTOR = 3.0  # a single run differs if it is this many times the usual spread away


class Change(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One value of a side against the same value of the first side, as shares: 0.08 is 8 % more.

    `low` and `high` bound the change with `confidence`; two runs a side have the range of all ratios, without a
    confidence, and single runs have neither. `p` is the two-sided probability of such ranks by chance. `needed` is
    about how many runs a side would settle a change that cannot be told.
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
    if min(*before, *after) <= 0:
        return Change(change=None, verdict="cannot tell", reason="a value is not positive")
    ratios = sorted(b / a - 1 for a in before for b in after)
    middle = statistics.median(ratios)
    floor = max(floor, FLOOR, history or 0.0)
    if min(len(before), len(after)) < TESTED:
        return _untested(ratios, better, (len(before), len(after)), floor, history)
    rank, confidence = interval_rank(len(before), len(after))
    low, high = ratios[rank - 1], ratios[-rank]
    p = _p_value(before, after)
    found = Change(change=middle, low=low, high=high, confidence=confidence, p=p, verdict="cannot tell")
    bound = max(floor, min(_range_of(before), NOISE_CAP), min(_range_of(after), NOISE_CAP))
    if low > floor or high < -floor:
        found.verdict, found.reason = _direction(middle, better), "" if confidence >= LEVEL else "likely"
    elif -bound <= low and high <= bound:
        found.verdict, found.reason = "within noise", f"less than {_percent(max(-low, high, 0))}"
    else:
        found.needed = _needed(min(len(before), len(after)), (low, middle, high), floor)
    return found


def spread_of(values: Sequence[float]) -> float | None:
    """The robust relative spread of values of equal runs; None for fewer than five."""
    if len(values) < 5 or (middle := statistics.median(values)) <= 0:
        return None
    return 1.4826 * statistics.median(abs(value - middle) for value in values) / middle


@functools.cache
def interval_rank(before: int, after: int) -> tuple[int, float]:
    """The rank of the interval's ends among all ratios, and its confidence: 95 % or, for few runs, what is possible."""
    if max(before, after) > EXACT:
        z = statistics.NormalDist().inv_cdf((1 + LEVEL) / 2)
        return max(1, math.floor(before * after / 2 - z * _deviation(before, after))), LEVEL
    counts, total = _rank_sums(before, after), math.comb(before + after, after)
    rank, tail = 1, counts[0]
    while rank < len(counts) // 2 and 2 * (tail + counts[rank]) <= (1 - LEVEL) * total:
        tail += counts[rank]
        rank += 1
    return rank, 1 - 2 * tail / total


@functools.cache
def _rank_sums(before: int, after: int) -> list[int]:
    """In how many orders of all values the statistic U is 0, 1, 2, …."""
    counts = [[[1]] * (after + 1)] + [[[1]] + [[]] * after for _ in range(before)]
    for a in range(1, before + 1):
        for b in range(1, after + 1):
            found = [0] * (a * b + 1)
            for at, count in enumerate(counts[a - 1][b]):
                found[at + b] += count
            for at, count in enumerate(counts[a][b - 1]):
                found[at] += count
            counts[a][b] = found
    return counts[before][after]


def _p_value(before: Sequence[float], after: Sequence[float]) -> float:
    """The two-sided probability of ranks at least this far apart; ties count half, rounded towards no difference."""
    wins = sum((b > a) + 0.5 * (b == a) for a in before for b in after)
    if max(len(before), len(after)) > EXACT:
        distance = abs(wins - len(before) * len(after) / 2) / _deviation(len(before), len(after))
        return 2 * (1 - statistics.NormalDist().cdf(distance))
    extreme = math.ceil(min(wins, len(before) * len(after) - wins))
    counts = _rank_sums(len(before), len(after))
    return min(1.0, 2 * sum(counts[: extreme + 1]) / math.comb(len(before) + len(after), len(after)))


def _deviation(before: int, after: int) -> float:
    """The standard deviation of U."""
    return math.sqrt(before * after * (before + after + 1) / 12)


def _untested(
    ratios: list[float], better: Better, counts: tuple[int, int], floor: float, history: float | None
) -> Change:
    """One or two runs on a side: only the usual spread of earlier runs can tell noise from a difference."""
    middle, (before, after) = statistics.median(ratios), counts
    found = Change(change=middle, verdict="cannot tell")
    if min(counts) > 1:
        found.low, found.high = ratios[0], ratios[-1]
    runs = (
        "one run each" if before == after == 1 else f"{before} and {after} runs" if before != after else "2 runs each"
    )
    if history is None:
        found.reason, found.needed = f"{runs}: noise unknown", 5
        return found
    limit = max(floor, HISTORY_FACTOR * history)
    found.verdict = _direction(middle, better) if abs(middle) > limit else "within noise"
    found.reason = f"{runs}; earlier runs vary by {_percent(history)}"
    return found


def _direction(change: float, better: Better) -> Verdict:
    if not better:
        return "differs"
    return "better" if (change > 0) == (better == "high") else "worse"


def _range_of(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1


def _needed(count: int, interval: tuple[float, float, float], floor: float) -> int:
    """The width of an interval falls with the square root of the number of runs."""
    low, middle, high = interval
    wanted = max(abs(abs(middle) - floor), floor / 2)
    runs = count * ((high - low) / 2 / wanted) ** 2
    return max(count + 1, min(1000, math.ceil(runs)))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
