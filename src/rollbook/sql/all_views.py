"""The sampled tables and the views of many records: each over all of them, with a column `run`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import duckdb

from rollbook.errors import RecordError
from rollbook.metrics.totals import COUNTED
from rollbook.metrics.views import counted_table, tables_of
from rollbook.records.record import Record, RecordHosts
from rollbook.sources import catalogue
from rollbook.sql.connection import fill
from rollbook.sql.damage import damaged_tables, mismatches
from rollbook.tables.quoting import literal, quoted, text
from rollbook.tables.reasons import UNREADABLE

__all__ = ["add_views", "list_views"]

EMPTY = "no_record"  # the schema of a record without data
INTERNAL = ("same_mounts", *map(counted_table, COUNTED))
NO_ROWS = f"SELECT NULL::VARCHAR AS run, * FROM {EMPTY}.{{}} WHERE false"  # noqa: S608 - for quoted names


def add_views(
    connection: duckdb.DuckDBPyConnection, records: Mapping[str, Path], used: Collection[str], problems: list[str]
) -> list[Path]:
    """Create the used tables and views over all of these records; returns the files that they read.

    `used` has names in lower case; those that are not a table or view of a record, and those that exist already, are
    left out. `problems` is extended by a line for each record of which a used table cannot be read.

    Tables of samples are read as one list of files. All others depend on their record, on its interval for example:
    each record gets a schema of its own, and a view is the union over these.
    """
    used = {*used} - _tables(connection, "main")
    if not used:
        return []
    _add_schema(connection, EMPTY, _bare(Path(os.devnull, "none")), used)
    runs = _readable(records, used, problems)
    files = {run: {name.lower(): path for name, path in one.series_files().items()} for run, one in runs.items()}
    known = _tables(connection, EMPTY)
    views = known - {source.name for source in catalogue.load() if source.every}
    sampled = {name for there in files.values() for name in there if name not in views}
    derived = {name for name in used - sampled if name in known or tables_of(name) & sampled}
    schemas = _add_schemas(connection, runs, derived, problems) if derived else {}
    for name in sorted(used & (known | sampled | derived)):
        parts = [NO_ROWS.format(quoted(name))] if name in known else []  # columns and their order do not depend on rows
        if name in sampled:
            parts.append(_samples({run: there[name] for run, there in files.items() if name in there}))
        parts += [
            f"SELECT {text(run)} AS run, * FROM {schema}.{quoted(name)}"  # noqa: S608 - quoted
            for run, (schema, there) in schemas.items()
            if name in derived and name in there
        ]
        if parts:
            connection.execute(f"CREATE VIEW {quoted(name)} AS {_union(parts)}")
    return [path.resolve() for there in files.values() for path in there.values()]


def list_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Create all tables and views that do not exist yet, without rows, for queries that list them."""
    connection.execute(f"DROP SCHEMA IF EXISTS {EMPTY} CASCADE")
    _add_schema(connection, EMPTY, _bare(Path(os.devnull, "none")), None)
    for name in sorted(_tables(connection, EMPTY) - _tables(connection, "main") - {*INTERNAL}):
        connection.execute(f"CREATE VIEW {quoted(name)} AS {NO_ROWS.format(quoted(name))}")


def _tables(connection: duckdb.DuckDBPyConnection, schema: str) -> set[str]:
    """The tables and views of a schema, in lower case."""
    query = "SELECT lower(table_name) FROM information_schema.tables WHERE table_schema = ?"
    return {name for (name,) in connection.execute(query, [schema]).fetchall()}


def _readable(records: Mapping[str, Path], used: Collection[str], problems: list[str]) -> dict[str, Record]:
    """The records with those tables that the query needs and that are whole."""
    needed = {*used, *(table for name in used for table in tables_of(name))}
    found = {}
    for run, path in records.items():
        try:
            one = _bare(path)
            one = one.without_tables(name for name in one.series_files() if name.lower() not in needed)
            damaged = _damaged(one)
            found[run] = one.without_tables(damaged)
        except RecordError as error:
            problems.append(f"{run}: {error}")
            continue
        if damaged:
            problems.append(f"{run}: damaged tables are left out: {', '.join(damaged)}; see rollbook verify")
    return found


def _bare(path: Path) -> Record:
    """A record of which only the tables are read: its documents may be large."""
    return Record(path, {}, RecordHosts(started_ns=0, ended_ns=0))


def _damaged(record: Record) -> list[str]:
    """The tables that do not match the manifest or, without one, cannot be read."""
    if not (names := {name.lower() for name in record.series_files()}):
        return []
    changed = mismatches(record, names)
    return list(damaged_tables(record)) if changed is None else changed


def _add_schemas(
    connection: duckdb.DuckDBPyConnection, runs: Mapping[str, Record], used: Collection[str], problems: list[str]
) -> dict[str, tuple[str, set[str]]]:
    """Open each record in a schema; by run, its name and its tables and views."""
    found = {}
    for number, (run, light) in enumerate(runs.items()):
        schema = f"run_{number}"
        try:
            whole = Record.open(light.path)
            chosen = light.series_files()
            one = whole.without_tables(name for name in whole.series_files() if name not in chosen)
            _add_schema(connection, schema, one, used)
        except (RecordError, *UNREADABLE) as error:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            connection.execute("SET schema = 'main'")
            problems.append(f"{run}: {str(error).splitlines()[0]}")
            continue
        found[run] = (schema, _tables(connection, schema))
    return found


def _add_schema(
    connection: duckdb.DuckDBPyConnection, schema: str, record: Record, wanted: Collection[str] | None
) -> None:
    connection.execute(f"CREATE SCHEMA {schema}")
    connection.execute(f"SET schema = '{schema}'")
    fill(connection, record, whole=True, facts=wanted is None or "facts" in wanted, wanted=wanted)
    connection.execute("SET schema = 'main'")


def _samples(files: Mapping[str, Path]) -> str:
    """The rows of one table in all records."""
    resolved = {path.resolve(): run for run, path in files.items()}
    cases = "MAP {" + ", ".join(f"{text(path)}: {text(run)}" for path, run in resolved.items()) + "}"
    listed = ", ".join(text(literal(path)) for path in resolved)
    body = f"read_parquet([{listed}], filename = true, union_by_name = true, hive_partitioning = false)"
    return f"SELECT {cases}[filename] AS run, * EXCLUDE (filename) FROM {body}"  # noqa: S608 - quoted


def _union(parts: Sequence[str]) -> str:
    """The rows of all queries; nested as a tree, because DuckDB limits the depth of a query."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return f"({_union(parts[:middle])}) UNION ALL BY NAME ({_union(parts[middle:])})"
