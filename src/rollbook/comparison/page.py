"""The page of a comparison: tables, changed facts, and charts of all runs, aligned at their start or at a phase."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollbook.clean import count_text
from rollbook.comparison.model import Comparison, Row, letter_of
from rollbook.comparison.sides import Side
from rollbook.comparison.statistics import CALLED, Verdict
from rollbook.comparison.text import change_cell, fact_lines, headline, row_cells, verdict_cell
from rollbook.comparison.values import phase_names
from rollbook.files import BY_UMASK, write_file
from rollbook.records.record import Record
from rollbook.report.page import embed
from rollbook.sql.connection import connect_internal

__all__ = ["ComparisonPage", "build", "overall_verdict", "write_page"]

BUCKETS = 200  # points of a line
CHARTS = 16
START = "start of the run"


class RunShown(msgspec.Struct):
    """One run: the place of its side, its name, and by name of a phase the seconds from its start to that phase."""

    side: int
    label: str
    phases: dict[str, float]


class LinesShown(msgspec.Struct):
    """One chart: for each run its values by bucket, in the order of the runs; null where there is no sample.

    `changes` has a line about each further side.
    """

    id: str
    title: str
    unit: str
    changes: list[str]
    lines: list[list[float | None]]


class RowShown(msgspec.Struct):
    """One row of the table: the cells of the first side and of a further one."""

    kind: str
    title: str
    cells: list[str]
    verdict: str


class TableShown(msgspec.Struct):
    """A further side against the first; `verdict` is that on the main results."""

    side: int
    headline: str
    verdict: str
    rows: list[RowShown]
    facts: list[str]


class ComparisonPage(msgspec.Struct):
    """The document inside the page. `bucket` is in seconds; `alignments` names the start and the common phases."""

    title: str
    created: float
    sides: list[str]
    runs: list[RunShown]
    bucket: float
    alignments: list[str]
    tables: list[TableShown]
    charts: list[LinesShown]
    notes: list[str]


def write_page(found: Comparison, sides: Sequence[Side], path: Path) -> None:
    """Write the page as one HTML file, atomically."""
    write_file(path, embed("compare", build(found, sides)).encode(), mode=BY_UMASK)


def build(found: Comparison, sides: Sequence[Side]) -> ComparisonPage:
    """The document of the page; the tables of the series are read for the charts."""
    records = [(at, record) for at, side in enumerate(sides) for record in side.runs]
    longest = max((record.hosts.ended_ns - record.hosts.started_ns) / 1e9 for _, record in records)
    interval = max(record.hosts.interval_seconds or 1.0 for _, record in records)
    width = max(interval, longest / BUCKETS)
    metrics = sorted((row for row in found.rows if row.kind == "metric"), key=_interest)[:CHARTS]
    names = [row.name for row in metrics]
    lines = [_lines(record, names, width) for _, record in records]
    common = [name for name in phase_names(records[0][1]) if all(name in phase_names(record) for _, record in records)]
    return ComparisonPage(
        title=" and ".join(side.label for side in found.sides),
        created=time.time() * 1000,
        sides=[
            f"{letter_of(at)}: {side.label}, {count_text(len(side.records), 'run')}"
            for at, side in enumerate(found.sides)
        ],
        runs=[RunShown(at, record.path.name, _offsets(record)) for at, record in records],
        bucket=width,
        alignments=[START, *(name for name in common if name != "run")],
        tables=[_table(found, at) for at in range(1, len(found.sides))],
        charts=[
            LinesShown(row.name, row.title, row.unit, _changes(row), [line[at] for line in lines])
            for at, row in enumerate(metrics)
        ],
        notes=found.notes,
    )


def _interest(row: Row) -> tuple[bool, float]:
    """Metrics that differ first, then by the size of the change."""
    called = any(change.verdict in CALLED for change in row.changes)
    return not called, -max(abs(change.change or 0.0) for change in row.changes)


def _changes(row: Row) -> list[str]:
    found = []
    for at, change in enumerate(row.changes, 1):
        text = " ".join(filter(None, (change_cell(change), verdict_cell(change))))
        found.append(f"{letter_of(at)} vs {letter_of(0)}: {text}")
    return found


def _offsets(record: Record) -> dict[str, float]:
    found: dict[str, float] = {START: 0.0}
    for phase in record.hosts.phases:
        found.setdefault(phase.name, (phase.start_ns - record.hosts.started_ns) / 1e9)
    return found


def overall_verdict(found: Comparison, at: int) -> Verdict:
    """The verdict on the main results of a further side, as its headline states it; `at` is its place in the rows."""
    verdicts = {row.changes[at].verdict for row in found.rows if row.main and row.better}
    order: tuple[Verdict, ...] = ("worse", "better", "cannot tell")
    return next((one for one in order if one in verdicts), "within noise" if verdicts else "cannot tell")


def _table(found: Comparison, number: int) -> TableShown:
    rows = []
    for row in found.rows:
        title, *cells = row_cells(row, number - 1)
        rows.append(RowShown(row.kind, title, cells, row.changes[number - 1].verdict))
    facts = list(fact_lines(found.facts[number - 1]))
    return TableShown(number, headline(found, number - 1), overall_verdict(found, number - 1), rows, facts)


def _lines(record: Record, names: Sequence[str], width: float) -> list[list[float | None]]:
    """The mean over hosts of each metric in each bucket since the start of the run."""
    if not names or not record.series_files():
        return [[] for _ in names]
    buckets = math.ceil((record.hosts.ended_ns - record.hosts.started_ns) / 1e9 / width) + 1
    lines: list[list[float | None]] = [[None] * buckets for _ in names]
    means = ", ".join(f"avg({name})" for name in names)
    start, step = record.hosts.started_ns, round(width * 1e9)
    with connect_internal(record) as connection:
        query = f"SELECT (epoch_ns(ts) - {start}) // {step} AS bucket, {means} FROM rates GROUP BY bucket"  # noqa: S608 - names of metrics
        for bucket, *values in connection.execute(query).fetchall():
            if 0 <= bucket < buckets:
                for line, value in zip(lines, values, strict=True):
                    line[bucket] = None if value is None or not math.isfinite(value) else float(f"{value:.4g}")
    return lines
