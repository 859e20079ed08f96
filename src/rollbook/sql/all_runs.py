"""SQL over many records at once: a table of runs, and the tables and views of all of them.

`connect_all` opens a DuckDB connection that can read the tables of these records and no other file, with

    runs          one row per record, also for unfinished and broken ones
    results       the benchmarks' own results, with the columns of the same table of one record
    phase_stats   the statistics of every metric in every phase, as they are stored in each record
    findings      the findings of every record
    rates, disks, hosts, facts, meminfo, …   every other table and view of a record, with the rows of all records

Each has a column `run`, the path of the record relative to the results directory. Only what a query names is opened,
and a record that cannot be read affects no other: its rows are missing, and a line reports it.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from rollbook.errors import RecordError
from rollbook.records.locate import metadata_files
from rollbook.records.phase_statistics import PhaseStatistics
from rollbook.records.reading import UNDECODABLE, read_regular
from rollbook.records.summary import RecordSummary
from rollbook.sql import record_tables
from rollbook.sql.all_views import add_views, list_views
from rollbook.sql.connection import CONFIG, restrict
from rollbook.sql.record_tables import columns_sql, finding_rows, insert_rows, result_rows
from rollbook.tables.reasons import UNREADABLE

__all__ = ["AllRecords", "Rows", "connect_all", "run_name"]

Rows = Sequence[tuple[Any, ...]]

RUNS = """CREATE TABLE runs (run VARCHAR, state VARCHAR, reason VARCHAR, type VARCHAR, started TIMESTAMP,
    seconds DOUBLE, name VARCHAR, tags VARCHAR[], note VARCHAR, "group" VARCHAR, repeat BIGINT, command VARCHAR,
    exit_code BIGINT, hosts BIGINT, hosts_complete BIGINT, host_names VARCHAR[], fail BIGINT, warn BIGINT,
    verdict VARCHAR, verification VARCHAR)"""
RESULTS = f"CREATE TABLE results (run VARCHAR, {columns_sql(record_tables.RESULTS)})"
FINDINGS = f"CREATE TABLE findings (run VARCHAR, {columns_sql(record_tables.FINDINGS)})"
PHASES = """CREATE TABLE phase_stats (run VARCHAR, number BIGINT, phase VARCHAR, metric VARCHAR, samples BIGINT,
    hosts BIGINT, mean DOUBLE, p50 DOUBLE, p95 DOUBLE, max DOUBLE, hosts_p50 DOUBLE, hosts_p95 DOUBLE, hosts_min DOUBLE,
    hosts_max DOUBLE, slowest_host VARCHAR)"""  # after `run` the fields of `PhaseStatistics`
OWN = ("runs", "results", "phase_stats", "findings")
ABOUT = {"describe", "summarize"}
LISTING = {"show", "information_schema", "duckdb_tables", "duckdb_views", "duckdb_columns"}
"""Words of queries about single tables, and about all tables."""


class _Metadata(msgspec.Struct):
    metrics: Any = None
    phases: Any = None
    phase_statistics: list[PhaseStatistics] = []


@dataclasses.dataclass(frozen=True)
class AllRecords:
    """The connection, and a line for each record that is not completely in the tables of the query."""

    connection: duckdb.DuckDBPyConnection
    problems: Sequence[str]


def connect_all(
    results: Path, records: Iterable[RecordSummary], sql: str, tables: Mapping[str, Rows] | None = None
) -> AllRecords:
    """Open records for a query. Only what the query mentions is read, besides the table `runs`.

    `tables` has further ones: the statement that creates a table, and its rows.
    """
    connection = duckdb.connect(config=dict(CONFIG))
    try:
        connection.execute("SET enable_progress_bar = false")
        listed, used = list(records), _tables_of_query(connection, sql)
        names = {one.path: run_name(Path(one.path), results) for one in listed}
        insert_rows(connection, RUNS, [_run(names[one.path], one) for one in listed])
        for statement, rows in (tables or {}).items():
            insert_rows(connection, statement, rows)
        complete = {names[one.path]: Path(one.path) for one in listed if one.state == "complete"}
        problems = _add_documents(connection, complete, used)
        if used - {"runs"}:
            lost = [one for one in listed if one.state in ("unfinished", "broken")]
            problems += [f"{names[one.path]} is {one.state}: {one.reason}" for one in lost]
        files = add_views(connection, complete, used, problems)
        if {*_words(sql)} & LISTING:
            list_views(connection)
        restrict(connection, files)
    except UNREADABLE as error:
        connection.close()
        raise RecordError(f"{results}: the records cannot be opened for SQL: {error}") from error
    return AllRecords(connection, problems)


def _tables_of_query(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """The tables that a query may read, in lower case; all its words if DuckDB cannot parse it."""
    words = {*_words(sql)}
    try:
        return words if words & ABOUT else {name.lower() for name in connection.get_table_names(sql)}
    except duckdb.Error:
        return words


def _words(sql: str) -> list[str]:
    return re.findall(r"\w+", sql.lower())


def _add_documents(connection: duckdb.DuckDBPyConnection, records: Mapping[str, Path], used: set[str]) -> list[str]:
    """Create the tables from the documents of the records; returns what could not be read."""
    problems: list[str] = []
    wanted = not used.isdisjoint(("results", "phase_stats"))
    stored = list(_metadata(records, problems)) if wanted else []
    documents = [(run, {"metrics": one.metrics, "phases": one.phases}) for run, one in stored]
    insert_rows(connection, RESULTS, [(run, *row) for run, one in documents for row in result_rows(one)])
    statistics = [(run, *msgspec.structs.astuple(row)) for run, one in stored for row in one.phase_statistics]
    insert_rows(connection, PHASES, statistics)
    insert_rows(connection, FINDINGS, _findings(records, problems) if "findings" in used else [])
    return problems


def run_name(path: Path, results: Path) -> str:
    """How the tables name a record."""
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


def _metadata(records: Mapping[str, Path], problems: list[str]) -> Iterator[tuple[str, _Metadata]]:
    for run, path in records.items():
        try:
            yield run, msgspec.json.decode(read_regular(metadata_files(path)[0]), type=_Metadata)
        except (RecordError, IndexError, *UNDECODABLE) as error:
            problems.append(f"{run}: {error}")


def _findings(records: Mapping[str, Path], problems: list[str]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for run, path in records.items():
        try:
            rows += [(run, *row) for row in finding_rows(path)]
        except RecordError as error:
            problems.append(f"{run}: {error}")
    return rows
