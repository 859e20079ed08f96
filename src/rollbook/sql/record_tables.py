"""The tables of a record besides the series: hosts, facts, phases, gaps, losses, findings, results."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from rollbook.errors import RecordError
from rollbook.records.findings import read_findings
from rollbook.records.hosts import HostResult
from rollbook.records.record import Gap, Phase, RecordHosts, SeriesHost
from rollbook.records.results import results_of
from rollbook.sources import catalogue
from rollbook.sources.base import Facts, key_of, keys_of
from rollbook.sql.damage import create_failing_view
from rollbook.tables.arrow import Batches, Numbers, Texts
from rollbook.tables.parquet import json_text
from rollbook.tables.quoting import quoted

__all__ = [
    "FINDINGS",
    "RESULTS",
    "add_facts",
    "add_findings",
    "add_hosts",
    "add_table",
    "columns_sql",
    "finding_rows",
    "insert_rows",
    "result_rows",
]

Cells = tuple[Any, ...]

CHUNK, ROWS = 50_000, 1000  # rows of one statement: passed as columns, as parameters
RESULTS: Mapping[str, str] = {
    **dict.fromkeys(("job", "host", "phase", "metric"), "VARCHAR"),
    "value": "DOUBLE",
    **dict.fromkeys(("unit", "text"), "VARCHAR"),
}
FINDINGS: Mapping[str, str] = {
    **dict.fromkeys(("rule", "severity"), "VARCHAR"),
    "hosts": "VARCHAR[]",
    **dict.fromkeys(("group", "message", "advice", "silenced"), "VARCHAR"),
}
"""Columns and their SQL types; with several records there is also `run`."""

TIMES = dict.fromkeys(("start", "end"), "TIMESTAMP_NS")
PHASES: Mapping[str, str] = {"number": "BIGINT", "name": "VARCHAR", **TIMES}
GAPS: Mapping[str, str] = {"host": "VARCHAR", "source": "VARCHAR", **TIMES, "why": "VARCHAR"}
LOSSES: Mapping[str, str] = {
    **dict.fromkeys(("host", "source", "kind"), "VARCHAR"),
    **dict.fromkeys(("samples", "partly", "due", "stored"), "BIGINT"),
    **dict.fromkeys(("first", "last"), "TIMESTAMP_NS"),
}
HOSTS: Mapping[str, str] = {
    **dict.fromkeys(("host", "hostname", "status", "reason", "method", "machine_id", "boot_id"), "VARCHAR"),
    **dict.fromkeys(("end_status", "end_reason", "series_status", "series_reason"), "VARCHAR"),
    **dict.fromkeys(("samples", "late", "missed"), "BIGINT"),
    **dict.fromkeys(("first", "last"), "TIMESTAMP_NS"),
    "boots": "BIGINT",
    **dict.fromkeys(("cpu_share", "clock_offset_ms", "clock_bound_ms"), "DOUBLE"),
}
NUMBERS = {"BIGINT": ("l", "q"), "DOUBLE": ("g", "d"), "TIMESTAMP_NS": ("tsn:", "q")}
"""The Arrow format of each SQL type, and the type code of its array."""


def add_hosts(connection: duckdb.DuckDBPyConnection, hosts: RecordHosts) -> None:
    """Create the tables `hosts`, `phases`, `gaps` and `losses`."""
    start, end = ({one.name: one for one in results} for results in (hosts.start, hosts.end))
    series = {one.name: one for one in hosts.series}
    names = start | end | series
    add_table(connection, "hosts", HOSTS, (_host(n, start.get(n), end.get(n), series.get(n)) for n in names))
    phases = hosts.phases or [Phase("run", hosts.started_ns, hosts.ended_ns + 1)]
    add_table(connection, "phases", PHASES, ((n, one.name, one.start_ns, one.end_ns) for n, one in enumerate(phases)))
    add_table(connection, "gaps", GAPS, _gaps(hosts))
    add_table(connection, "losses", LOSSES, _losses(hosts))


def _gaps(hosts: RecordHosts) -> Iterator[Cells]:
    """Times without samples of a host, then those of one source of it."""
    gaps: list[tuple[str, str | None, Gap]] = [(one.name, None, gap) for one in hosts.series for gap in one.gaps]
    gaps += [(one.name, source.source, gap) for one in hosts.series for source in one.sources for gap in source.gaps]
    for host, name, gap in gaps:
        yield host, name, gap.start_ns, gap.end_ns, gap.why


def _losses(hosts: RecordHosts) -> Iterator[Cells]:
    """Samples of a source that are lost or incomplete, by host, source and kind."""
    for one in hosts.series:
        for source in one.sources:
            for loss in source.losses:
                counts = (loss.samples, loss.partly, source.due, source.stored)
                yield one.name, source.source, loss.kind, *counts, loss.first_ns, loss.last_ns


def add_facts(connection: duckdb.DuckDBPyConnection, hosts: RecordHosts, *, filled: bool) -> None:
    """Create `facts`, thousands of rows for each host; if not `filled`, a view that fails with the reason when read."""
    columns = dict.fromkeys(("host", "phase", "source", "key", "field", "value"), "VARCHAR")
    if filled:
        add_table(connection, "facts", columns, _facts(hosts))
    else:
        create_failing_view(connection, "facts", columns, "the record was opened without its facts")


def add_findings(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Create the table `findings` from the record's `findings.json`; empty for a record that was not checked.

    If the file cannot be read, `findings` is a view that fails with the reason.
    """
    try:
        rows = list(finding_rows(path))
    except RecordError as error:
        create_failing_view(connection, "findings", FINDINGS, str(error))
        return
    insert_rows(connection, f"CREATE TABLE findings ({columns_sql(FINDINGS)})", rows)


def finding_rows(path: Path) -> Iterator[Cells]:
    """The rows of `findings`; none for a record that was not checked. Raises `RecordError` if they cannot be read."""
    checked = read_findings(path)
    for rule in checked.rules if checked else ():
        for one in rule.findings:
            silenced = one.silenced.reason if one.silenced else None
            yield rule.id, one.severity, one.hosts, one.group, one.message, one.advice, silenced


def result_rows(metadata: Mapping[str, Any]) -> Iterator[Cells]:
    """The rows of `results`: what the benchmark itself measured, one for each job, phase and metric."""
    for one in results_of(metadata):
        yield tuple(value if (value := getattr(one, name)) != "" else None for name in RESULTS)


def columns_sql(columns: Mapping[str, str]) -> str:
    """Columns and their types as in a statement that creates a table."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def add_table(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, str], rows: Iterable[Cells]
) -> None:
    """Create a table and insert any number of rows; each column has a SQL type of `NUMBERS`, or is VARCHAR."""
    connection.execute(f"CREATE TABLE {table} ({columns_sql(columns)})")
    waiting = iter(rows)
    while chunk := list(islice(waiting, CHUNK)):
        cells = zip(columns.items(), zip(*chunk, strict=True), strict=True)
        batch = {name: _column(kind, values) for (name, kind), values in cells}
        connection.register("batches", Batches([batch]))
        connection.execute(f"INSERT INTO {table} SELECT * FROM batches")  # noqa: S608 - our own names
        connection.unregister("batches")


def insert_rows(connection: duckdb.DuckDBPyConnection, create: str, rows: Sequence[Cells]) -> None:
    """Create a table with the statement `create` and insert the rows, many at once; columns may have any type."""
    connection.execute(create)
    name = create.split()[2]
    for at in range(0, len(rows), ROWS):
        some = rows[at : at + ROWS]
        marks = ", ".join(["(" + ", ".join(["?"] * len(some[0])) + ")"] * len(some))
        connection.execute(f"INSERT INTO {name} VALUES {marks}", [cell for row in some for cell in row])  # noqa: S608 - our own names


def _column(kind: str, values: Cells) -> Texts | Numbers:
    if kind == "VARCHAR":
        return Texts([(value, 1) for value in values])
    form, code = NUMBERS[kind]
    nulls = [(at, 1) for at, value in enumerate(values) if value is None]
    return Numbers(form, array(code, [0 if value is None else value for value in values]), nulls)


def _host(name: str, start: HostResult | None, end: HostResult | None, series: SeriesHost | None) -> Cells:
    first = start or end
    clock = series.clocks[-1].clock if series and series.clocks else first.clock if first else None
    return (
        name,
        *_of(first, "hostname", "status", "reason", "method", "machine_id", "boot_id"),
        *_of(end, "status", "reason"),
        *_of(series, "status", "reason", "samples", "late", "missed", "first_ns", "last_ns"),
        len(series.boot_ids) if series else None,
        *_of(series, "cpu_share"),
        *((clock.offset_ns / 1e6, clock.bound_ns / 1e6) if clock else (None, None)),
    )


def _of(one: object | None, *names: str) -> list[Any]:
    return [getattr(one, name, None) for name in names]


def _facts(hosts: RecordHosts) -> Iterator[Cells]:
    for phase, results in (("start", hosts.start), ("end", hosts.end)):
        for result in results:
            for source, key, field, value in _values(result):
                yield result.name, phase, source, key, field, value


def _values(result: HostResult) -> Iterator[tuple[str, str, str, str | None]]:
    """Every value of every fact as text; entries of dicts are named `field.name`."""
    for source, fact in result.facts.items():
        for row in fact if isinstance(fact, list) else [fact]:
            if not isinstance(row, Facts) or catalogue.find(source) is None:
                yield source, "", "", json_text(row)
                continue
            key, keys = key_of(row), keys_of(type(row))
            for field, value in msgspec.structs.asdict(row).items():
                if isinstance(value, dict):
                    for name, one in value.items():
                        yield source, key, f"{field}.{name}", json_text(one)
                elif field not in keys:
                    yield source, key, field, json_text(value)
