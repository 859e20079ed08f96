"""SQL over a record: one view per table of the series, and the metrics that are computed from them.

`connect` opens a DuckDB connection that can read the record's own tables and no other file, with

    <source>            the table of each sampled source, without rows where the record has none; also of sources that
                        are not installed here, if the record has them
    <source>_rates      the same with counters per second
    samples, rates      one row per host and beat: values as they were read, and all metrics
    disks, interfaces, ports, gpus, nfs_mounts, …   metrics per device
    host_<part>         metrics per host and beat, of one view of devices or one table; `rates` joins them all
    hosts, facts, phases, gaps, losses, findings, results   all that is not part of the series
    phase_stats         statistics of every metric in every phase, over time and over hosts
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import duckdb

from rollbook.errors import RecordError, UsageError
from rollbook.metrics.counters import MACROS
from rollbook.metrics.rates import rates_of, step_macro
from rollbook.metrics.totals import COUNTED, MOUNTED, same_mounts
from rollbook.metrics.views import Sampled, counted_table, views_of
from rollbook.protocol.beats import shell_step
from rollbook.records.hosts import HostResult
from rollbook.records.record import Record
from rollbook.sources import catalogue
from rollbook.sources.base import Compare, Mode, compare_of, keys_of, most_beats
from rollbook.sql.damage import damaged_tables, replace_damaged
from rollbook.sql.record_tables import RESULTS, add_facts, add_findings, add_hosts, add_table, result_rows
from rollbook.tables.parquet import about, empty, in_order
from rollbook.tables.quoting import literal, parquet, quoted, text
from rollbook.tables.reasons import UNREADABLE, reason_of

__all__ = [
    "CONFIG",
    "connect",
    "connect_internal",
    "dicts",
    "fill",
    "query",
    "readable",
    "relation",
    "restrict",
    "rows",
    "wants_facts",
]

CHUNK = 1000
CONFIG = {"autoinstall_known_extensions": "false", "temp_directory": "", "TimeZone": "UTC"}
"""For every connection that runs a user's SQL. The times of a record are UTC."""


def connect(
    record: Record,
    output: Path | None = None,
    *,
    whole: bool = False,
    facts: bool = False,
    rates: bool = True,
    wanted: Collection[str] | None = None,
    as_live: bool = False,
) -> duckdb.DuckDBPyConnection:
    """Open a record for SQL. Queries can read its tables and no other file but those in `output`.

    With `whole`, for queries over all hosts, rates are computed in one pass over each table. `facts` fills the table
    `facts`, which takes long for many hosts; without it a query of that table fails. Without `rates`, there are no
    views `<source>_rates`, which take as long to create as all others. With `wanted`, only views of these names and
    what they need are created; tables are always there. `as_live` as for `views_of`.

    A damaged table, and every view that needs one, fails with the reason when it is read. Raises `RecordError` if the
    record cannot be opened at all.
    """

    def open_tables(record: Record) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(config=dict(CONFIG))
        try:
            connection.execute("SET enable_progress_bar = false")  # it would be mixed into the output
            fill(connection, record, whole=whole, facts=facts, rates=rates, wanted=wanted, as_live=as_live)
            if output is not None:
                connection.execute(f"SET allowed_directories = [{text(output.resolve())}]")
            restrict(connection, (path.resolve() for path in record.series_files().values()))
        except UNREADABLE:
            connection.close()
            raise
        return connection

    with readable(record):
        damaged = dict.fromkeys(sorted(record.missing_tables()), "its file is missing")
        try:
            connection = open_tables(record)
        except UNREADABLE:
            unreadable = damaged_tables(record)
            if not unreadable:
                raise
            damaged |= unreadable
            connection = open_tables(record.without_tables(unreadable))
        if damaged:
            replace_damaged(connection, damaged)
        return connection


@contextlib.contextmanager
def connect_internal(record: Record, *, whole: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection for Rollbook's own queries, without views `<source>_rates`.

    Raises `RecordError` if a query cannot read a table.
    """
    with readable(record), connect(record, whole=whole, rates=False) as connection:
        yield connection


@contextlib.contextmanager
def readable(record: Record) -> Iterator[None]:
    """Raise `RecordError` in place of an error of DuckDB, for queries that can fail only if a table is damaged."""
    try:
        yield
    except UNREADABLE as error:
        damaged = [f"the table {name} is damaged: {why}" for name, why in damaged_tables(record).items()]
        reason = "; ".join(damaged) or f"the tables cannot be read: {reason_of(error)}"
        raise RecordError(f"{record.path}: {reason}") from error


def restrict(connection: duckdb.DuckDBPyConnection, files: Iterable[Path]) -> None:
    """Deny queries access to any file but these and those in allowed directories, and lock this setting."""
    names = ", ".join(text(name) for path in files for name in (path, literal(path)))
    connection.execute(f"SET allowed_paths = [{names}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def wants_facts(sql: str) -> bool:
    """Whether a query may read the table `facts`."""
    return "facts" in sql.lower()


def relation(record: Record, sql: str) -> duckdb.DuckDBPyRelation:
    """The result of one SELECT as a DuckDB relation, for `.df()`, `.pl()` and `.arrow()`; raises `UsageError`."""
    connection = connect(record, facts=wants_facts(sql))
    try:
        return connection.sql(_select(sql))
    except UNREADABLE as error:
        raise UsageError(str(error)) from error


def _select(sql: str) -> duckdb.Statement:
    """The only statement of a text, which must be a SELECT."""
    statements = duckdb.extract_statements(sql)
    if len(statements) != 1 or statements[0].type.name != "SELECT":
        raise UsageError("only a single SELECT statement is allowed")
    return statements[0]


def query(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyConnection:
    """Run SQL that a user typed, which may only read; raises `UsageError` with what is wrong."""
    try:
        return connection.execute(_select(sql))
    except UNREADABLE as error:
        raise UsageError(str(error).expandtabs(4)) from error


def rows(found: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    """The rows of such a query; raises `UsageError` for values that turn out to be wrong."""
    try:
        while some := found.fetchmany(CHUNK):
            yield from some
    except UNREADABLE as error:
        if "pytz" in str(error):  # DuckDB needs it for such values
            raise UsageError("a time with a zone cannot be shown: cast it to TIMESTAMP") from error
        raise UsageError(str(error)) from error


def dicts(found: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    """The rows by the names of their columns; raises `UsageError` if two have the same name."""
    names = [column[0] for column in found.description or []]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two columns are called {twice[0]}: give them names with AS")
    return (dict(zip(names, row, strict=True)) for row in rows(found))


def fill(
    connection: duckdb.DuckDBPyConnection,
    record: Record,
    *,
    whole: bool,
    facts: bool,
    rates: bool = True,
    wanted: Collection[str] | None = None,
    as_live: bool = False,
) -> None:
    """Create the tables and views of a record in the connection's current schema; raises one of `UNREADABLE`.

    `facts`, `rates` and `as_live` as for `connect`. With `wanted`, only views of these names and what they need: most
    of the time is spent on views.
    """
    add_facts(connection, record.hosts, filled=facts)
    for macro in MACROS:
        connection.execute(macro)
    interval, files = record.hosts.interval_seconds or 1.0, record.series_files()
    connection.execute(step_macro(record.hosts.without_python, shell_step(interval)))
    columns: dict[str, dict[str, str]] = {}
    sampled: dict[str, Sampled] = {}
    for source in catalogue.load():
        if not source.every:
            continue
        path = files.get(source.name)
        body = f"FROM {parquet(path.resolve())}" if path else empty(source)
        connection.execute(f"CREATE VIEW {quoted(source.name)} AS {body}")
        types = columns[source.name] = _types(connection, source.name)
        compare = {name: how for name, how in compare_of(source.row_type).items() if not how.columns}
        if path:
            compare = {name: compare.get(name, how) for name, how in _described(connection, path).items()}
        streamed = whole and (path is None or in_order(connection, path))
        table = Sampled(types, compare, interval * max(source.beats(interval), record.hosts.merged), streamed)
        if rates and (wanted is None or f"{source.name}_rates" in wanted):
            body = rates_of(quoted(source.name), types, compare, table.step, streamed=streamed)
            connection.execute(f"CREATE VIEW {quoted(f'{source.name}_rates')} AS {body}")
        if path:
            sampled[source.name] = table
    add_hosts(connection, record.hosts)
    add_findings(connection, record.path)
    add_table(connection, "results", RESULTS, result_rows(record.metadata))
    _counted(connection, record)
    for name, body in _needed(views_of(sampled, columns, as_live=as_live), wanted).items():
        connection.execute(f"CREATE VIEW {quoted(name)} AS {body}")
    if foreign := {name: path for name, path in files.items() if name not in columns}:
        _add_foreign(connection, foreign, interval * max(most_beats(interval), record.hosts.merged), whole=whole)


def _needed(views: Mapping[str, str], wanted: Collection[str] | None) -> Mapping[str, str]:
    """The views that are wanted and those that they refer to, in the order of creation."""
    if wanted is None:
        return views
    names, needed = list(views), {*wanted}
    for at in reversed(range(len(names))):
        if names[at] in needed:  # a view names only earlier ones; other words may be aliases
            needed.update({*names[:at]} & {*re.findall(r"\w+", views[names[at]])})
    return {name: body for name, body in views.items() if name in needed}


def _add_foreign(connection: duckdb.DuckDBPyConnection, files: Mapping[str, Path], step: float, *, whole: bool) -> None:
    """Views of the tables whose sources are not installed here, as the files themselves describe them.

    How often such a source was read is not known: `step` is the longest that any source has.
    """
    names = "SELECT lower(table_name) FROM information_schema.tables WHERE table_schema = current_schema()"
    taken = {row[0] for row in connection.execute(names).fetchall()}
    for name, path in files.items():
        if name.lower() in taken:
            continue
        connection.execute(f"CREATE VIEW {quoted(name)} AS FROM {parquet(path.resolve())}")
        if compare := _described(connection, path):
            streamed = whole and in_order(connection, path)
            rates = rates_of(quoted(name), _types(connection, name), compare, step, streamed=streamed)
            connection.execute(f"CREATE VIEW IF NOT EXISTS {quoted(f'{name}_rates')} AS {rates}")


def _described(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, Compare]:
    """How each column of a table compares, from the metadata of its file."""
    return {name: Compare(cast("Mode", mode), unit) for name, (mode, unit) in about(connection, path).items()}


def _types(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {quoted(table)}").fetchall()}


def _counted(connection: duckdb.DuckDBPyConnection, record: Record) -> None:
    """Which devices of which host count in its totals."""
    by_host: dict[str, list[HostResult]] = {}
    for result in record.hosts.hosts:
        by_host.setdefault(result.name, []).append(result)
    for source, choose in COUNTED.items():
        devices = _devices(connection, source)
        rows = [(host, name) for host, names in devices.items() for name in choose(names, by_host.get(host, []))]
        add_table(connection, counted_table(source), dict.fromkeys(("host", "device"), "VARCHAR"), rows)
    # Mounts come and go, so a different one may represent its file system at every beat.
    mounted: dict[str, dict[str, None]] = {}
    for source in MOUNTED:
        for host, names in _devices(connection, source).items():
            mounted.setdefault(host, {}).update(dict.fromkeys(names))
    mounts = [
        (host, *pair) for host, names in mounted.items() for pair in same_mounts(names, by_host.get(host, [])).items()
    ]
    add_table(connection, "same_mounts", dict.fromkeys(("host", "device", "same"), "VARCHAR"), mounts)


def _devices(connection: duckdb.DuckDBPyConnection, source: str) -> dict[str, list[str]]:
    """The devices of each host in a sampled table, by its first key."""
    device = keys_of(catalogue.source(source).row_type)[0]
    found: dict[str, list[str]] = {}
    query = f"SELECT DISTINCT host, {device} FROM {source} ORDER BY ALL"  # noqa: S608 - our own names
    for host, name in connection.execute(query).fetchall():
        found.setdefault(host, []).append(name)
    return found
