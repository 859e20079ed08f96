"""SQL over many records at once: a table of runs, their results, phases and findings, and the sampled tables.

`connect_all` opens a DuckDB connection that can read the tables of these records and no other file, with

    runs          one row per record, also for unfinished and broken ones
    results       the benchmarks' own results, with the columns of the same table of one record
    phase_stats   the statistics of every metric in every phase, as they are stored in each record
    findings      the findings of every record
    <source>      the table of each sampled source

Each has a column `run`, the path of the record relative to the results directory.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from rollbook.errors import RecordError
from rollbook.records.findings import Findings
from rollbook.records.locate import metadata_files
from rollbook.records.reading import read_regular, require_directory, require_regular
from rollbook.records.record import PhaseStatistics
from rollbook.records.results import results_of
from rollbook.records.summary import RecordSummary
from rollbook.tables.quoting import literal, quoted, text

__all__ = ["connect_all"]

RUNS = """CREATE TABLE runs (run VARCHAR, state VARCHAR, reason VARCHAR, type VARCHAR, started TIMESTAMP,
    seconds DOUBLE, name VARCHAR, tags VARCHAR[], note VARCHAR, "group" VARCHAR, repeat BIGINT, command VARCHAR,
    exit_code BIGINT, hosts BIGINT, hosts_complete BIGINT, host_names VARCHAR[], fail BIGINT, warn BIGINT,
    verdict VARCHAR, verification VARCHAR)"""
RESULTS = """CREATE TABLE results (run VARCHAR, job VARCHAR, host VARCHAR, phase VARCHAR, metric VARCHAR, value DOUBLE,
    unit VARCHAR, text VARCHAR)"""
FINDINGS = """CREATE TABLE findings (run VARCHAR, rule VARCHAR, severity VARCHAR, hosts VARCHAR[], message VARCHAR,
    advice VARCHAR, silenced VARCHAR)"""
STATISTICS = ("mean", "p50", "p95", "max", "hosts_p50", "hosts_p95", "hosts_min", "hosts_max")
PHASES = f"""CREATE TABLE phase_stats (run VARCHAR, number BIGINT, phase VARCHAR, metric VARCHAR, samples BIGINT,
    hosts BIGINT, {", ".join(f"{name} DOUBLE" for name in STATISTICS)}, slowest_host VARCHAR)"""
OWN = ("runs", "results", "phase_stats", "findings")
CHUNK = 1000
NAME = re.compile(r"\w+", re.ASCII)
"""Names of sources; a file of another name is not a table."""


class _Metadata(msgspec.Struct):
    metrics: Any = None
    phases: Any = None
    phase_statistics: list[PhaseStatistics] = []


def connect_all(
    results: Path, records: Iterable[RecordSummary], sql: str, damaged: list[str]
) -> duckdb.DuckDBPyConnection:
    """Open records for SQL. Only what the query mentions is read, besides the table `runs`.

    A line for each table of the query that cannot be read, and is left out, is added to `damaged`.
    """
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "temp_directory": ""})
    try:
        connection.execute("SET enable_progress_bar = false")
        listed = list(records)
        names = {one.path: _name(Path(one.path), results) for one in listed}
        _insert(connection, RUNS, [_run(names[one.path], one) for one in listed])
        complete = [(names[one.path], Path(one.path)) for one in listed if one.state == "complete"]
        lower = sql.lower()
        wanted = any(word in lower for word in ("results", "phase_stats", "show", "describe"))
        stored = [(run, _metadata(path)) for run, path in complete] if wanted else []
        _insert(connection, RESULTS, [row for run, one in stored for row in _results(run, one)])
        _insert(connection, PHASES, [_phase(run, row) for run, one in stored for row in one.phase_statistics])
        _insert(connection, FINDINGS, _findings(complete) if "findings" in lower else [])
        unreadable: dict[str, list[str]] = {}
        files = _tables(connection, complete, unreadable)
        damaged += [line for table, lines in unreadable.items() if table in lower for line in lines]
        paths = ", ".join(text(name) for path in files for name in (path, literal(path)))
        connection.execute(f"SET allowed_paths = [{paths}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except duckdb.Error as error:
        connection.close()
        raise RecordError(f"{results}: the records cannot be opened for SQL: {error}") from error
    return connection


def _name(path: Path, results: Path) -> str:
    return str(path.relative_to(results) if path.is_relative_to(results) else path)


def _run(run: str, one: RecordSummary) -> tuple[Any, ...]:
    counts, group = one.findings or {}, one.group
    return (
        run, one.state, one.reason or None, one.type, _time(one.started), one.seconds, one.name or None,
        one.tags, one.note or None, group.id if group else None, group.index if group else None, one.command or None,
        one.exit_code, one.hosts, one.hosts_complete, one.host_names, counts.get("fail"), counts.get("warn"),
        one.verdict, one.verification,
    )  # fmt: skip


def _time(started: str) -> dt.datetime | None:
    """A time without a zone, in UTC; None for a text that is not a time."""
    try:
        return dt.datetime.fromisoformat(started).astimezone(dt.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _metadata(path: Path) -> _Metadata:
    try:
        return msgspec.json.decode(read_regular(metadata_files(path)[0]), type=_Metadata)
    except (RecordError, msgspec.MsgspecError, RecursionError, IndexError):
        return _Metadata()


def _results(run: str, metadata: _Metadata) -> list[tuple[Any, ...]]:
    names = ("job", "host", "phase", "metric", "value", "unit", "text")
    rows = results_of({"metrics": metadata.metrics, "phases": metadata.phases})
    return [(run, *(getattr(row, name) if getattr(row, name) != "" else None for name in names)) for row in rows]


def _phase(run: str, row: PhaseStatistics) -> tuple[Any, ...]:
    names = ("number", "phase", "metric", "samples", "hosts", *STATISTICS, "slowest_host")
    return (run, *(getattr(row, name) for name in names))


def _findings(records: Sequence[tuple[str, Path]]) -> list[tuple[Any, ...]]:
    rows = []
    for run, path in records:
        try:
            checked = msgspec.json.decode(read_regular(path / "findings.json"), type=Findings)
        except (RecordError, msgspec.MsgspecError, RecursionError):
            continue
        rows += [
            (run, rule.id, one.severity, one.hosts, one.message, one.advice, one.silenced and one.silenced.reason)
            for rule in checked.rules
            for one in rule.findings
        ]
    return rows


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    """Create a table and fill it, many rows with each statement."""
    connection.execute(table)
    name = table.split()[2]
    for at in range(0, len(rows), CHUNK):
        some = rows[at : at + CHUNK]
        marks = ", ".join(["(" + ", ".join(["?"] * len(some[0])) + ")"] * len(some))
        connection.execute(f"INSERT INTO {name} VALUES {marks}", [cell for row in some for cell in row])  # noqa: S608 - our own names


def _tables(
    connection: duckdb.DuckDBPyConnection, records: Sequence[tuple[str, Path]], unreadable: dict[str, list[str]]
) -> list[Path]:
    """Create a view of each sampled source over all records that have it; returns the files."""
    found: dict[str, list[tuple[str, Path]]] = {}
    for run, path in records:
        try:
            require_directory(path / "series")
            for file in sorted((path / "series").glob("*.parquet")):
                require_regular(file)
                if NAME.fullmatch(file.stem):
                    found.setdefault(file.stem.lower(), []).append((run, file.resolve()))
        except RecordError:
            continue  # a link or a device in place of a table is not read; `runs` still has the record
    for table in found.keys() - set(OWN):
        try:
            connection.execute(_view(table, found[table]))
        except duckdb.Error:
            found[table], unreadable[table] = _usable(connection, table, found[table])
    return [file for files in found.values() for _, file in files]


def _usable(
    connection: duckdb.DuckDBPyConnection, table: str, files: Sequence[tuple[str, Path]]
) -> tuple[list[tuple[str, Path]], list[str]]:
    """Create the view of a table over the files that can be read; returns these, and what is wrong with the others."""
    usable, wrong = [], []
    for one in files:
        try:
            connection.execute(_view(table, [one]))
            usable.append(one)
        except duckdb.Error as error:
            wrong.append(f"{one[1]}: {str(error).splitlines()[0]}")
    if usable:
        connection.execute(_view(table, usable))
    return usable, wrong


def _view(table: str, files: Sequence[tuple[str, Path]]) -> str:
    cases = "MAP {" + ", ".join(f"{text(file)}: {text(run)}" for run, file in files) + "}"
    listed = ", ".join(text(literal(file)) for _, file in files)
    body = f"read_parquet([{listed}], filename = true, union_by_name = true, hive_partitioning = false)"
    select = f"SELECT {cases}[filename] AS run, * EXCLUDE (filename) FROM {body}"  # noqa: S608 - quoted
    return f"CREATE OR REPLACE VIEW {quoted(table)} AS {select}"
