"""Whether a comparison keeps a limit, for continuous integration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rollbook.clean import count_text
from rollbook.comparison.model import Comparison
from rollbook.comparison.statistics import Better, Change

__all__ = ["Judgement", "judge"]

UNTESTED = 0.10  # a difference of runs that are too few to test must exceed this to break a limit


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A line for each result that breaks the limit, and one for each that may break it."""

    slower: Sequence[str]
    unsure: Sequence[str]


def judge(found: Comparison, limit: float) -> Judgement:
    """Whether no main result of a further side is worse than that of the first by more than `limit`, a share.

    A result breaks the limit if it is worse by more than that and its verdict is worse. Runs that are too few to test
    break it if they are worse by more than 10 %, too: a limit that single runs can never break would protect nothing.
    A result keeps the limit if its whole interval does. All others may break it, and so may a side with runs that
    failed, and one that lacks a result in some or all of its runs.
    """
    slower: list[str] = []
    unsure: list[str] = []
    for side in found.sides:
        if side.failed:
            unsure.append(f"{side.label}: {side.failed} of {len(side.records)} runs failed")
        unsure += [f"{side.label}: there is no {name}" for name in side.lacks]
        unsure += [
            f"{side.label}: {count_text(runs, 'run')} without {name}" for name, runs in side.lacking_runs.items()
        ]
    rows = [row for row in found.rows if row.main and row.better]
    for row in rows:
        for side, change, values in zip(found.sides[1:], row.changes, row.values[1:], strict=True):
            if not values:  # then it is among those that the side lacks
                continue
            breaks, why = _judge(row.better, change, limit)
            if why:
                (slower if breaks else unsure).append(f"{side.label}: {row.title} {why}")
    if not rows and not unsure:
        unsure.append("the sides have no common result for which it is known whether higher or lower is better")
    return Judgement(slower, unsure)


def _judge(better: Better, change: Change, limit: float) -> tuple[bool, str]:
    """Whether a value breaks the limit, and why it does or may; an empty reason if it keeps it."""
    if change.change is None:
        return change.verdict == "worse", "" if change.verdict == "better" else f"{change.verdict} ({change.reason})"
    low, high = (change.change if end is None else end for end in (change.low, change.high))
    worse, most = (-change.change, -low) if better == "high" else (change.change, high)
    untested = change.verdict == "cannot tell" and change.confidence is None
    if worse > limit and (change.verdict == "worse" or (untested and worse > UNTESTED)):
        doubt = "; too few runs to test it" if untested else ""
        return True, f"is {100 * worse:.1f} % worse, limit {100 * limit:g} %{doubt}"
    if untested:
        return False, f"cannot be judged ({change.reason})"
    return False, f"may be {100 * most:.1f} % worse, limit {100 * limit:g} %" if most > limit else ""
