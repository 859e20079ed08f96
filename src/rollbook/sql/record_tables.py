"""The tables of a record besides the series: hosts, facts, phases, gaps, losses, findings, results."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
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
from rollbook.sql.failing import create_failing_view
from rollbook.tables.arrow import Batches, Numbers, Texts
from rollbook.tables.quoting import quoted

__all__ = [
    "FINDINGS",
    "RESULTS",
    "add_facts",
    "add_findings",
    "add_hosts",
    "add_results",
    "add_texts",
    "columns_sql",
    "finding_rows",
    "json_text",
    "result_rows",
]

CHUNK = 50_000
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

HOSTS = """CREATE TABLE hosts (host VARCHAR, hostname VARCHAR, status VARCHAR, reason VARCHAR, method VARCHAR,
    machine_id VARCHAR, boot_id VARCHAR, end_status VARCHAR, end_reason VARCHAR, series_status VARCHAR,
    series_reason VARCHAR, samples BIGINT, late BIGINT, missed BIGINT, "first" TIMESTAMP_NS, "last" TIMESTAMP_NS,
    boots BIGINT, cpu_share DOUBLE, clock_offset_ms DOUBLE, clock_bound_ms DOUBLE)"""


def add_hosts(connection: duckdb.DuckDBPyConnection, hosts: RecordHosts) -> None:
    """Create the tables `hosts`, `phases`, `gaps` and `losses`."""
    connection.execute(HOSTS)
    start, end = ({one.name: one for one in results} for results in (hosts.start, hosts.end))
    series = {one.name: one for one in hosts.series}
    marks = ", ".join(["?"] * 14 + ["make_timestamp_ns(?)"] * 2 + ["?"] * 4)
    for name in start | end | series:
        row = _host(name, start.get(name), end.get(name), series.get(name))
        connection.execute(f"INSERT INTO hosts VALUES ({marks})", row)  # noqa: S608 - question marks
    connection.execute('CREATE TABLE phases (number BIGINT, name VARCHAR, "start" TIMESTAMP_NS, "end" TIMESTAMP_NS)')
    phases = hosts.phases or [Phase("run", hosts.started_ns, hosts.ended_ns + 1)]
    for number, phase in enumerate(phases):
        connection.execute(
            "INSERT INTO phases VALUES (?, ?, make_timestamp_ns(?), make_timestamp_ns(?))",
            [number, phase.name, phase.start_ns, phase.end_ns],
        )
    _add_gaps(connection, hosts)
    _add_losses(connection, hosts)


def _add_gaps(connection: duckdb.DuckDBPyConnection, hosts: RecordHosts) -> None:
    """Create the table `gaps`: times without samples of a host, or of one source of it."""
    columns = 'host VARCHAR, source VARCHAR, "start" TIMESTAMP_NS, "end" TIMESTAMP_NS, why VARCHAR'
    connection.execute(f"CREATE TABLE gaps ({columns})")
    gaps: list[tuple[str, str | None, Gap]] = [(one.name, None, gap) for one in hosts.series for gap in one.gaps]
    gaps += [(one.name, source.source, gap) for one in hosts.series for source in one.sources for gap in source.gaps]
    if not gaps:
        return
    rows: dict[str, Texts | Numbers] = {
        "host": Texts([(host, 1) for host, _, _ in gaps]),
        "source": Texts([(source, 1) for _, source, _ in gaps]),
        "start": Numbers("tsn:", array("q", [gap.start_ns for _, _, gap in gaps])),
        "end": Numbers("tsn:", array("q", [gap.end_ns for _, _, gap in gaps])),
        "why": Texts([(gap.why, 1) for _, _, gap in gaps]),
    }
    _insert(connection, "gaps", rows)


def _add_losses(connection: duckdb.DuckDBPyConnection, hosts: RecordHosts) -> None:
    """Create the table `losses`: samples of a source that are lost or incomplete, by host, source and kind."""
    counts = "samples BIGINT, partly BIGINT, due BIGINT, stored BIGINT"
    columns = f'host VARCHAR, source VARCHAR, kind VARCHAR, {counts}, "first" TIMESTAMP_NS, "last" TIMESTAMP_NS'
    connection.execute(f"CREATE TABLE losses ({columns})")
    losses = [(one.name, source, loss) for one in hosts.series for source in one.sources for loss in source.losses]
    if not losses:
        return
    rows: dict[str, Texts | Numbers] = {
        "host": Texts([(host, 1) for host, _, _ in losses]),
        "source": Texts([(source.source, 1) for _, source, _ in losses]),
        "kind": Texts([(loss.kind, 1) for _, _, loss in losses]),
        "samples": Numbers("l", array("q", [loss.samples for _, _, loss in losses])),
        "partly": Numbers("l", array("q", [loss.partly for _, _, loss in losses])),
        "due": Numbers("l", array("q", [source.due for _, source, _ in losses])),
        "stored": Numbers("l", array("q", [source.stored for _, source, _ in losses])),
        "first": Numbers("tsn:", array("q", [loss.first_ns for _, _, loss in losses])),
        "last": Numbers("tsn:", array("q", [loss.last_ns for _, _, loss in losses])),
    }
    _insert(connection, "losses", rows)


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: dict[str, Texts | Numbers]) -> None:
    """Add rows, given as columns, to a table."""
    connection.register("batches", Batches([rows]))
    connection.execute(f"INSERT INTO {table} SELECT * FROM batches")  # noqa: S608 - our own names
    connection.unregister("batches")


def add_facts(connection: duckdb.DuckDBPyConnection, hosts: RecordHosts, *, filled: bool) -> None:
    """Create `facts`, thousands of rows for each host; if not `filled`, a view that fails with the reason when read."""
    columns = ("host", "phase", "source", "key", "field", "value")
    if filled:
        add_texts(connection, "facts", columns, _facts(hosts))
        return
    reason = "the record was opened without its facts"
    create_failing_view(connection, "facts", dict.fromkeys(columns, "VARCHAR"), reason)


def add_findings(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Create the table `findings` from the record's `findings.json`; empty for a record that was not checked.

    If the file cannot be read, `findings` is a view that fails with the reason.
    """
    try:
        rows = list(finding_rows(path))
    except RecordError as error:
        create_failing_view(connection, "findings", FINDINGS, str(error))
        return
    connection.execute(f"CREATE TABLE findings ({columns_sql(FINDINGS)})")
    for row in rows:
        connection.execute("INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def finding_rows(path: Path) -> Iterator[tuple[Any, ...]]:
    """The rows of `findings`; none for a record that was not checked. Raises `RecordError` if they cannot be read."""
    checked = read_findings(path)
    for rule in checked.rules if checked else ():
        for one in rule.findings:
            silenced = one.silenced.reason if one.silenced else None
            yield rule.id, one.severity, one.hosts, one.group, one.message, one.advice, silenced


def add_results(connection: duckdb.DuckDBPyConnection, metadata: Mapping[str, Any]) -> None:
    """Create the table `results`: what the benchmark itself measured, a row for each job, phase and metric."""
    connection.execute(f"CREATE TABLE results ({columns_sql(RESULTS)})")
    for row in result_rows(metadata):
        connection.execute("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def result_rows(metadata: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The rows of `results`."""
    for one in results_of(metadata):
        yield tuple(value if (value := getattr(one, name)) != "" else None for name in RESULTS)


def columns_sql(columns: Mapping[str, str]) -> str:
    """Columns and their types as in a statement that creates a table."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def add_texts(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], rows: Iterator[tuple[str | None, ...]]
) -> None:
    """Create a table of texts from any number of rows."""
    connection.execute(f"CREATE TABLE {table} ({', '.join(f'{name} VARCHAR' for name in columns)})")
    while chunk := list(islice(rows, CHUNK)):
        texts = [Texts([(value, 1) for value in values]) for values in zip(*chunk, strict=True)]
        _insert(connection, table, dict(zip(columns, texts, strict=True)))


def _host(name: str, start: HostResult | None, end: HostResult | None, series: SeriesHost | None) -> list[Any]:
    first = start or end
    clock = series.clocks[-1].clock if series and series.clocks else first.clock if first else None
    return [
        name,
        *_of(first, "hostname", "status", "reason", "method", "machine_id", "boot_id"),
        *_of(end, "status", "reason"),
        *_of(series, "status", "reason", "samples", "late", "missed", "first_ns", "last_ns"),
        len(series.boot_ids) if series else None,
        *_of(series, "cpu_share"),
        *((clock.offset_ns / 1e6, clock.bound_ns / 1e6) if clock else (None, None)),
    ]


def _of(one: object | None, *names: str) -> list[Any]:
    return [getattr(one, name, None) for name in names]


def _facts(hosts: RecordHosts) -> Iterator[tuple[str | None, ...]]:
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


def json_text(value: Any) -> str | None:
    """A value as text: texts as they are, all else as JSON; None stays None."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
