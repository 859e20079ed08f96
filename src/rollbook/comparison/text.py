"""A comparison as text: the same lines for the terminal, notebooks and the page."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from rollbook.checks.text import change_text, name_list
from rollbook.clean import count_text, shorten
from rollbook.comparison.model import ChangedFact, Comparison, FactChanges, Row
from rollbook.comparison.statistics import CALLED, Change, middle_of
from rollbook.metrics.formatting import amount
from rollbook.records import findings

__all__ = [
    "change_cell",
    "fact_lines",
    "fact_text",
    "folded_rows",
    "headline",
    "html_text",
    "row_cells",
    "verdict_cell",
]

LONGEST = 60  # characters of a command line
CONTEXT = 20  # characters of it before the first difference
RESULTS = 3  # results named in a headline
FACTS = 10  # changed facts listed; the document has all


def _value_cell(values: Sequence[float], unit: str) -> str:
    """The mean of the runs with its unit: `1.5 GiB/s`; empty without values."""
    return amount(middle_of(values), unit) if values else ""


def change_cell(change: Change) -> str:
    """`+8.1 %`; empty if there is no ratio."""
    return "" if change.change is None else _percent(change.change)


def _interval_text(change: Change) -> str:
    """`+5.0 .. +11 %`; empty if there is no interval."""
    if change.low is None or change.high is None:
        return ""
    return f"{_signed(change.low)} .. {_percent(change.high)}"


def verdict_cell(change: Change) -> str:
    """The verdict with what the reader has to know about it."""
    if change.verdict == "cannot tell" and change.needed and change.confidence is not None:
        needed = "more than 100" if change.needed > 100 else f"about {change.needed}"
        return f"cannot tell; needs {needed} runs per side"
    if change.reason == "likely":
        return f"likely {change.verdict}"
    return f"{change.verdict} ({change.reason})" if change.reason else change.verdict


def row_cells(row: Row, at: int) -> tuple[str, ...]:
    """Title with the worst host, value of the first side, value, change, interval and verdict of a further side.

    `at` is the place of the further side's change in the row.
    """
    change, host = row.changes[at], row.hosts[at + 1] if row.hosts else ""
    values = (_value_cell(row.values[0], row.unit), _value_cell(row.values[at + 1], row.unit))
    title = f"{row.title} ({host})" if host else row.title
    return (title, *values, change_cell(change), _interval_text(change), verdict_cell(change))


def folded_rows(found: Comparison, at: int, *, everything: bool) -> tuple[list[Row], str]:
    """The rows to print, and one line about the others: metrics that differ, and results and phases besides zeros.

    `at` is the place of the further side's change in the rows.
    """

    def matters(row: Row) -> bool:
        if row.kind in ("result", "phase"):
            return any(value for side in row.values for value in side)
        return any(change.verdict in CALLED for change in row.changes)

    shown = [row for row in found.rows if everything or matters(row)]
    rest = [row for row in found.rows if not (everything or matters(row))]
    counts = Counter(row.changes[at].verdict for row in rest)
    text = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return shown, f"{count_text(len(rest), 'more value')}: {text}" if rest else ""


def headline(found: Comparison, at: int) -> str:
    """One sentence about the main results of a further side, whose changes are at this place in the rows."""
    base, side = found.sides[0].label, found.sides[at + 1].label
    rows = [row for row in found.rows if row.main and row.better]
    parts = [text for verdict in ("worse", "better") if (text := _called(rows, at, verdict))]
    unclear = [row.changes[at] for row in rows if row.changes[at].verdict == "cannot tell"]
    if parts:
        return f"{side} against {base}: {'; '.join(parts)}"
    if not rows:
        return f"{side} and {base} have no results in common"
    if len(unclear) < len(rows):
        rest = f"; {len(unclear)} cannot be judged" if unclear else ""
        results = count_text(len(rows) - len(unclear), "result")
        return f"{side} against {base}: no difference beyond noise in {results}{rest}"
    return f"{side} against {base}: cannot tell ({unclear[0].reason or 'the runs vary too much'})"


def fact_text(one: ChangedFact) -> str:
    """`block.scheduler nvme0n1: none -> mq-deadline`, with hosts and reasons."""
    if one.field == "command":
        before, after = _from_difference(one.before, one.after)
        text = f"command: {before or '(nothing)'} -> {after or '(nothing)'}"
    else:
        text = change_text(findings.Change(one.field, _short(one.before), _short(one.after), one.row, one.unit))
    return f"{text} ({'; '.join(one.reasons)})" if one.reasons else text


def fact_lines(changed: FactChanges) -> Iterator[str]:
    """The changed facts, the most likely first, and what a reader may conclude from them."""
    likely = [one for one in changed.facts if not one.varies]
    for one in changed.facts[:FACTS]:
        yield fact_text(one)
    if len(changed.facts) > FACTS:
        yield f"and {len(changed.facts) - FACTS} more; --json lists all"
    if len(likely) > 1:
        yield f"{len(likely)} facts changed together and cannot be told apart; change one at a time to find the cause"
    if not changed.facts:
        yield "no fact changed"
    if changed.ignored == 1:
        yield "1 identity or counter also differs"
    elif changed.ignored:
        yield f"{changed.ignored} identities and counters also differ"
    if changed.unchanged:
        yield f"unchanged: {', '.join(changed.unchanged)}"


def html_text(found: Comparison) -> str:
    """The comparison as HTML tables without script or style."""
    parts = []
    for at, (side, facts) in enumerate(zip(found.sides[1:], found.facts, strict=True)):
        parts.append(f"<h4>{escape(side.label)} against {escape(found.sides[0].label)}</h4>")
        cells = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row_cells(row, at)) + "</tr>" for row in found.rows
        )
        parts.append(f"<table>{cells}</table>")
        parts.append("<ul>" + "".join(f"<li>{escape(line)}</li>" for line in fact_lines(facts)) + "</ul>")
    parts += [f"<p>{escape(note)}</p>" for note in found.notes]
    return "".join(parts)


def _called(rows: Sequence[Row], at: int, verdict: str) -> str:
    """`2 results worse: read_iops -8.1 %, …`; empty without one."""
    called = [row for row in rows if row.changes[at].verdict == verdict]
    likely = "likely " * all(row.changes[at].reason == "likely" for row in called)
    named = name_list([f"{row.title} {change_cell(row.changes[at])}".rstrip() for row in called], RESULTS)
    return f"{count_text(len(called), 'result')} {likely}{verdict}: {named}" if called else ""


def _short(value: Any) -> Any:
    return f"{value[:3]} and {len(value) - 3} more" if isinstance(value, list) and len(value) > 4 else value


def _from_difference(before: str, after: str) -> tuple[str, str]:
    """Two command lines; if one is long, both from shortly before the place where they begin to differ."""
    if max(len(before), len(after)) <= LONGEST:
        return before, after
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
    start = max(0, sum(1 for _ in equal) - CONTEXT)
    cut = "…" if start else ""
    return shorten(cut + before[start:], LONGEST), shorten(cut + after[start:], LONGEST)


def _signed(share: float) -> str:
    percent = 100 * share
    if percent > 9999:
        return ">+9999"
    digits = 0 if abs(percent) >= 99.5 else 1
    return f"{percent:+.{digits}f}"


def _percent(share: float) -> str:
    return f"{_signed(share)} %"
