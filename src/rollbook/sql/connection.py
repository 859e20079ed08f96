"""SQL over a record: one view per table of the series, and what is made of them.

`connect` gives a DuckDB connection that can read the record's own tables and no other file, with

    <source>            the table of each sampled source, without rows where the record has none; also of those that
                        are not installed here, if the record has them
    <source>_rates      the same with counters per second
    all_cpus, paging    of `stat` the line that sums up all CPUs, of `vmstat` faults and swapping; *_rates per second
    samples, rates      one row per host and beat: what tells most, as it was read and per second
    disks, interfaces, ports, gpus, nfs_mounts      rates per device; *_total: the parts of `rates`, summed per host
    hosts, facts, phases, gaps, findings            what is known besides the series
    phase_stats         statistics of every rate in every phase, over time and over hosts
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb

from rollbook.errors import RecordError, UsageError
from rollbook.metrics.rates import MACROS, rates_of, step_macro
from rollbook.metrics.totals import counted_disks, counted_interfaces, same_mounts
from rollbook.metrics.views import PAGING, views_of
from rollbook.protocol.beats import shell_step
from rollbook.records.hosts import HostResult
from rollbook.records.record import Record
from rollbook.sources import catalogue
from rollbook.sources.base import SELDOM, Source, compare_of
from rollbook.sql.damage import damaged_tables, replace_damaged
from rollbook.sql.record_tables import add_facts, add_findings, add_known, add_texts
from rollbook.tables.parquet import about, empty, in_order
from rollbook.tables.quoting import literal, parquet, quoted, text

__all__ = ["connect", "dicts", "query", "rows", "wants_facts"]

CHUNK = 1000


def connect(
    run: Record, output: Path | None = None, *, whole: bool = False, facts: bool = False
) -> duckdb.DuckDBPyConnection:
    """Open a record for SQL. Queries can read its tables and no other file but those in `output`.

    `whole` is for who reads all hosts at once: rates are then made in one pass over each table. `facts` is for who
    reads that table, which takes long to make of many hosts; without, a query that reads it fails.
    """
    try:
        return _open(run, output, whole=whole, facts=facts)
    except duckdb.Error as error:
        damaged = damaged_tables(run)
        if not damaged:
            raise RecordError(f"{run.path}: the tables cannot be read: {error}") from error
    connection = _open(run.without_tables(damaged), output, whole=whole, facts=facts)
    replace_damaged(connection, damaged)
    return connection


def _open(run: Record, output: Path | None, *, whole: bool, facts: bool) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "temp_directory": ""})
    try:
        connection.execute("SET enable_progress_bar = false")  # it would be drawn into what a query prints
        add_facts(connection, run.hosts, made=facts)
        _fill(connection, run, whole=whole)
        paths = [path.resolve() for path in run.series_files().values()]
        files = ", ".join(text(name) for path in paths for name in (path, literal(path)))
        connection.execute(f"SET allowed_paths = [{files}]")
        if output is not None:
            connection.execute(f"SET allowed_directories = [{text(output.resolve())}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except duckdb.Error:
        connection.close()
        raise
    return connection


def wants_facts(sql: str) -> bool:
    """Whether a query may read the table `facts`."""
    return "facts" in sql.lower()


def query(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.DuckDBPyConnection:
    """Run SQL that somebody typed; it may read and nothing else. Raises `UsageError` with what is wrong."""
    try:
        statements = duckdb.extract_statements(sql)
        if len(statements) != 1 or statements[0].type.name != "SELECT":
            raise UsageError("one SELECT is asked for, not more, and nothing that writes")
        return connection.execute(statements[0])
    except duckdb.Error as error:
        raise UsageError(str(error)) from error


def rows(found: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    """The rows of such a query as they come; what is wrong with some values is only known then."""
    try:
        while some := found.fetchmany(CHUNK):
            yield from some
    except duckdb.Error as error:
        if "pytz" in str(error):  # which DuckDB needs for such values
            raise UsageError("a time with a zone cannot be shown: cast it to TIMESTAMP") from error
        raise UsageError(str(error)) from error


def dicts(found: duckdb.DuckDBPyConnection) -> Iterator[dict[str, Any]]:
    """The rows by the names of their columns; raises `UsageError` where two have the same."""
    names = [column[0] for column in found.description or []]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two columns are called {twice[0]}: give them names with AS")
    return (dict(zip(names, row, strict=True)) for row in rows(found))


def _fill(connection: duckdb.DuckDBPyConnection, run: Record, *, whole: bool) -> None:
    for macro in MACROS:
        connection.execute(macro)
    interval, files = run.hosts.interval_seconds or 1.0, run.series_files()
    connection.execute(step_macro(run.hosts.without_python, shell_step(interval)))
    sources = [source for source in catalogue.load() if source.every]
    types: dict[str, dict[str, str]] = {}
    steps: dict[str, float] = {}
    for source in sources:
        path = files.get(source.name)
        body = f"FROM {parquet(path.resolve())}" if path else empty(source)
        connection.execute(f"CREATE VIEW {quoted(source.name)} AS {body}")
        types[source.name] = _types(connection, source.name)
        step = interval * max(source.beats(interval), run.hosts.merged)
        if path:
            steps[source.name] = step
        notes = about(connection, path) if path else _declared(source)
        tables = {source.name: types[source.name]}
        if source.name == "stat":  # filtered before its rates are made: a large host has hundreds of other lines
            connection.execute("CREATE VIEW all_cpus AS FROM stat WHERE cpu = 'cpu'")
            tables["all_cpus"] = types["stat"]
        if source.name == "vmstat":  # what is made of it would otherwise be bound with hundreds of columns
            few = tables["paging"] = {name: kind for name, kind in types["vmstat"].items() if name in PAGING.values()}
            some = ", ".join(["host", "ts", "mono", *map(quoted, few)])
            connection.execute(f"CREATE VIEW paging AS SELECT {some} FROM vmstat")  # noqa: S608 - quoted names
        streamed = whole and (path is None or in_order(connection, path))
        for name, columns in tables.items():
            rates = rates_of(name, columns, notes, step, streamed=streamed)
            connection.execute(f"CREATE VIEW {quoted(f'{name}_rates')} AS {rates}")
    add_known(connection, run.hosts)
    add_findings(connection, run.path)
    _counted(connection, run)

    def column(table: str, name: str) -> str:
        return f"{quoted(table)}.{quoted(name)}" if name in types[table] else "NULL::BIGINT"

    for name, body in views_of(column, steps).items():
        connection.execute(f"CREATE VIEW {name} AS {body}")
    if foreign := {name: path for name, path in files.items() if name not in types}:
        _add_foreign(connection, foreign, interval * max(1, int(SELDOM / interval), run.hosts.merged), whole=whole)


def _add_foreign(connection: duckdb.DuckDBPyConnection, files: Mapping[str, Path], step: float, *, whole: bool) -> None:
    """Views of the tables whose sources are not installed here, as the files themselves describe them.

    How often such a source was read is not known: `step` is as seldom as any is.
    """
    asked = "SELECT lower(table_name) FROM information_schema.tables"
    taken = {row[0] for row in connection.execute(asked).fetchall()}
    for name, path in files.items():
        if name.lower() in taken:
            continue
        connection.execute(f"CREATE VIEW {quoted(name)} AS FROM {parquet(path.resolve())}")
        if notes := about(connection, path):
            streamed = whole and in_order(connection, path)
            rates = rates_of(name, _types(connection, name), notes, step, streamed=streamed)
            connection.execute(f"CREATE VIEW IF NOT EXISTS {quoted(f'{name}_rates')} AS {rates}")


def _types(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    return {row[0]: row[1] for row in connection.execute(f"DESCRIBE {quoted(table)}").fetchall()}


def _declared(source: Source) -> dict[str, tuple[str, str]]:
    return {name: (how.mode, how.unit) for name, how in compare_of(source.row_type).items() if not how.columns}


def _counted(connection: duckdb.DuckDBPyConnection, run: Record) -> None:
    """Which devices of which host count in its totals."""
    by_host: dict[str, list[HostResult]] = {}
    for record in run.hosts.hosts:
        by_host.setdefault(record.name, []).append(record)
    for what, table, device, choose in (
        ("counted_disks", "diskstats", "device_name", counted_disks),
        ("counted_interfaces", "net_dev", "interface_name", counted_interfaces),
    ):
        named = _named(connection, table, device)
        rows = [(host, name) for host, names in named.items() for name in choose(names, by_host.get(host, []))]
        add_texts(connection, what, ("host", "device"), iter(rows))
    # Mounts come and go: which one of a file system counts is another question at every beat.
    mounts = [
        (host, *pair)
        for host, names in _named(connection, "nfs", "mount_point").items()
        for pair in same_mounts(names, by_host.get(host, [])).items()
    ]
    add_texts(connection, "same_mounts", ("host", "device", "same"), iter(mounts))


def _named(connection: duckdb.DuckDBPyConnection, table: str, device: str) -> dict[str, list[str]]:
    """The devices of each host in a table."""
    found: dict[str, list[str]] = {}
    asked = f"SELECT DISTINCT host, {device} FROM {table} ORDER BY ALL"  # noqa: S608 - our own names
    for host, name in connection.execute(asked).fetchall():
        found.setdefault(host, []).append(name)
    return found
