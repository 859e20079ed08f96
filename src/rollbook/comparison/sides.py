"""Compares sides: each a run or a group of repeats."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from rollbook.checks.text import name_list
from rollbook.clean import count_text
from rollbook.comparison.facts import changed_facts
from rollbook.comparison.model import Comparison, Row, SideSummary
from rollbook.comparison.results import Key
from rollbook.comparison.statistics import CALLED, FLOOR, Change, change_of
from rollbook.comparison.values import RunValues, phase_names, run_values
from rollbook.errors import UsageError
from rollbook.metrics import catalogue
from rollbook.metrics.formatting import amount
from rollbook.records.record import Record

__all__ = ["Side", "compare_sides"]

QUALITY = 0.05  # false discoveries among the metrics that are called different
MAX_SIDES = 26  # each is named by a letter
MAX_NAMES = 3  # in a note


@dataclasses.dataclass(frozen=True)
class Side:
    """One side of a comparison: its label and its runs, in the order of their start."""

    label: str
    runs: Sequence[Record]


def compare_sides(
    sides: Sequence[Side], *, phase: str = "", floor: float = FLOOR, history: Mapping[str, float] | None = None
) -> Comparison:
    """Compare every further side with the first; runs that failed count only if all of a side did.

    A run counts as failed, too, if it has no exit status because its collector died.
    Metrics are those of `phase`, by default of the whole command. `floor` is the share below which differences of
    results do not matter; `history` has the usual spread of results by name. Raises `UsageError` if there are fewer
    than two or too many sides, a side has no runs, or a run does not have the phase.
    """
    if len(sides) < 2 or not all(side.runs for side in sides):
        raise UsageError("compare at least two runs, or two groups of runs")
    if len(sides) > MAX_SIDES:
        raise UsageError(f"compare at most {MAX_SIDES} sides, not {len(sides)}")
    counted = [[record for record in side.runs if not _failed(record)] or side.runs for side in sides]
    _require_phase(phase, counted)
    values = [[run_values(record, phase) for record in records] for records in counted]
    rows = [
        row for key in _keys(values) if (row := _row(key, values, floor, (history or {}).get(key.name))) is not None
    ]
    for at in range(len(sides) - 1):
        _control_discoveries([row for row in rows if row.kind in ("metric", "host")], at)
        if hopeless := [side.label for side in (sides[0], sides[at + 1]) if all(map(_failed, side.runs))]:
            _withdraw(rows, at, f"every run of {' and '.join(hopeless)} failed")
    facts = [
        changed_facts(side.label, counted[0], records, rows, at)
        for at, (side, records) in enumerate(zip(sides[1:], counted[1:], strict=True))
    ]
    summaries = [
        msgspec.structs.replace(_summary(side), lacks=_lacking(values[0], one), lacking_runs=_lacking_runs(one))
        for side, one in zip(sides, values, strict=True)
    ]
    notes = _notes(sides, summaries, rows)
    return Comparison(sides=summaries, phase=phase, rows=rows, facts=facts, notes=notes)


def _failed(record: Record) -> bool:
    """Whether the command of a run failed, or has no exit status because the collector died."""
    return bool(record.metadata.get("exit_code")) or _unknown_end(record)


def _unknown_end(record: Record) -> bool:
    """Whether Rollbook did not see the end of its command. MLPerf Storage's own metadata never have an exit status."""
    metadata = record.metadata
    is_own = not metadata.keys().isdisjoint(("exit_code", "coverage"))
    return is_own and bool(metadata.get("executed_command")) and metadata.get("exit_code") is None


def _withdraw(rows: Sequence[Row], at: int, reason: str) -> None:
    for row in rows:
        change = row.changes[at]
        change.verdict, change.reason, change.needed = "cannot tell", reason, None


def _lacking(base: Sequence[RunValues], side: Sequence[RunValues]) -> list[str]:
    """The main results of the first side that no run of another has."""
    there = {key for run in side for key in run.numbers}
    wanted = dict.fromkeys(key for run in base for key in run.numbers if key.main)
    return [key.title for key in wanted if key not in there]


def _lacking_runs(side: Sequence[RunValues]) -> dict[str, int]:
    """How many runs of a side lack a main result that others of it have."""
    there = collections.Counter(key for run in side for key in run.numbers if key.main)
    return {key.title: len(side) - count for key, count in there.items() if count < len(side)}


def _require_phase(wanted: str, sides: Sequence[Sequence[Record]]) -> None:
    """Raise `UsageError` if a run lacks the phase."""
    for record in (record for records in sides for record in records):
        if wanted and wanted not in (there := phase_names(record)):
            raise UsageError(f"{record.path} has no phase {wanted}; it has {', '.join(there)}")


def _keys(values: Sequence[Sequence[RunValues]]) -> list[Key]:
    """The keys that the first side and at least one other have in at least one run, results first."""
    first, *others = (dict.fromkeys(key for run in side for key in run.numbers) for side in values)
    return [key for key in first if any(key in side for side in others)]


def _row(key: Key, values: Sequence[Sequence[RunValues]], floor: float, history: float | None) -> Row | None:
    """The values of all runs; None for a metric that is negligible on all sides."""
    numbers = [[run.numbers[key] for run in side if key in run.numbers] for side in values]
    if _is_metric(key) and max(itertools.chain(*numbers)) < catalogue.load()[key.name].negligible:
        return None
    named = [{run.worst.get(key, "") for run in side} for side in values] if key.kind == "host" else []
    first, *others = numbers
    return Row(
        **vars(key),
        values=numbers,
        changes=[_change(key, first, side, floor, history) for side in others],
        hosts=[names.pop() if len(names) == 1 else "" for names in named],
    )


def _is_metric(key: Key) -> bool:
    return key.kind in ("metric", "host")


def _change(key: Key, before: Sequence[float], after: Sequence[float], floor: float, history: float | None) -> Change:
    """The change between two sides; of metrics, differences that do not matter are negligible."""
    if not after:
        return Change(change=None, verdict="cannot tell", reason="no value")
    if not _is_metric(key):
        return change_of(before, after, better=key.better, floor=floor, history=history)
    limit = catalogue.load()[key.name].negligible
    if max(*before, *after) - min(*before, *after) < limit:
        return _negligible(before, after, limit=limit, unit=key.unit)
    return change_of(before, after, better=key.better, history=history)


def _negligible(before: Sequence[float], after: Sequence[float], limit: float, unit: str) -> Change:
    found = change_of(before, after)
    if found.verdict == "identical":
        return found
    most = f"{limit:g} percentage points" if unit == "%" else amount(limit, unit)
    return msgspec.structs.replace(found, verdict="negligible", reason=f"differs by less than {most}", needed=None)


def _control_discoveries(rows: Sequence[Row], at: int) -> None:
    """Among many metrics some differ by chance: keep those that pass the procedure of Benjamini and Hochberg."""
    tested = sorted(
        (change.p, number)
        for number, row in enumerate(rows)
        if (change := row.changes[at]).p is not None and change.verdict != "negligible"
    )
    passed = max((rank for rank, (p, _) in enumerate(tested, 1) if p <= QUALITY * rank / len(tested)), default=0)
    for _, number in tested[passed:]:
        change = rows[number].changes[at]
        if change.verdict in CALLED:
            change.verdict, change.reason = "cannot tell", f"could be chance among {len(tested)} metrics"


def _summary(side: Side) -> SideSummary:
    first = side.runs[0]
    return SideSummary(
        label=side.label,
        records=[str(record.path) for record in side.runs],
        hosts=[host.name for host in first.hosts.start],
        type=str(first.metadata.get("benchmark_type") or ""),
        command=str(first.metadata.get("executed_command") or ""),
        failed=sum(map(_failed, side.runs)),
    )


def _notes(sides: Sequence[Side], summaries: Sequence[SideSummary], rows: Sequence[Row]) -> list[str]:
    """What a reader has to know before trusting the verdicts."""
    notes = []
    base = sides[0]
    for side in sides[1:]:
        if len(base.runs) > 1 and len(side.runs) > 1 and not _interleaved(base, side):
            notes.append(
                f"all runs of one side precede those of the other ({base.label}, {side.label}): a drift of the machine "
                "would look like a difference; alternate the runs"
            )
        if {host.name for host in base.runs[0].hosts.start} != {host.name for host in side.runs[0].hosts.start}:
            notes.append(f"{side.label} ran on different hosts from {base.label}")
    for side, summary in zip(sides, summaries, strict=True):
        notes += _failures(side)
        if summary.lacks:
            notes.append(f"{side.label} lacks results of {base.label}: {name_list(summary.lacks, MAX_NAMES)}")
        for title, count in summary.lacking_runs.items():
            notes.append(f"{title}: {count_text(count, 'run')} of {side.label} without it")
        if partial := [record for record in side.runs if not record.coverage.complete]:
            notes.append(f"{len(partial)} of {len(side.runs)} runs of {side.label} lack hosts: {_names(partial)}")
    untested = any(change.needed and change.confidence is None for row in rows for change in row.changes)
    if untested and any(len(side.runs) < 2 for side in sides):
        notes.append(
            "differences are tested only if each side has at least two runs; `rollbook run --repeat 5` records five"
        )
    results = [row for row in rows if row.kind == "result"]
    if not results:
        notes.append("the runs have no results in common")
    notes += [f"{row.title}: the first repeat is an outlier, probably a warm-up" for row in results if _odd_first(row)]
    return notes


def _failures(side: Side) -> Iterator[str]:
    """How many runs of a side failed or have no exit status, and which."""
    rest = "" if all(map(_failed, side.runs)) else "; not counted"
    unknown = [record for record in side.runs if _unknown_end(record)]
    failed = [record for record in side.runs if record.metadata.get("exit_code")]
    for records, what in ((failed, "failed"), (unknown, "have no exit status because the collector died")):
        if records:
            yield f"{len(records)} of {len(side.runs)} runs of {side.label} {what}: {_names(records)}{rest}"


def _names(records: Sequence[Record]) -> str:
    return name_list([record.path.name for record in records], MAX_NAMES)


def _interleaved(one: Side, two: Side) -> bool:
    starts = [[record.hosts.started_ns for record in side.runs] for side in (one, two)]
    return not (max(starts[0]) < min(starts[1]) or max(starts[1]) < min(starts[0]))


def _odd_first(row: Row) -> bool:
    """Whether the first of several repeats lies far outside the range of the others, on all sides."""

    def odd(values: Sequence[float]) -> bool:
        low, high = min(values[1:]), max(values[1:])
        reach = max(2 * (high - low), 0.02 * abs(high))
        return not low - reach <= values[0] <= high + reach

    return all(len(side) >= 4 and odd(side) for side in row.values)
