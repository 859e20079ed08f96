"""Damaged tables of a record: queries that do not use them still work, and those that use a changed one are warned.

Unreadable data must not look like missing data: a view in its place fails when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from pathlib import Path

import duckdb

from rollbook.errors import RecordError
from rollbook.metrics.views import tables_of
from rollbook.records.document import read
from rollbook.records.layout import Manifest, size_and_hash
from rollbook.records.locate import MANIFEST
from rollbook.records.record import Record
from rollbook.sources import catalogue
from rollbook.sources.base import Source
from rollbook.tables.parquet import about, connect, empty
from rollbook.tables.quoting import parquet, quoted, text
from rollbook.tables.reasons import UNREADABLE

__all__ = [
    "changed_tables",
    "create_failing_view",
    "damaged_tables",
    "mismatches",
    "replace_damaged",
    "replaced_tables",
]

WORD = re.compile(r"\w+")
DAMAGED = "damaged"  # the comment of a view that fails because its table is damaged


def damaged_tables(record: Record) -> dict[str, str]:
    """The tables that cannot be read completely, and why. Reads all of them: call it only after an error."""
    found = {}
    with connect({"temp_directory": ""}) as connection:
        for name, path in record.series_files().items():
            try:
                _require_columns(connection, catalogue.find(name), path.resolve())
                # A hash needs the values; a count may be taken from the statistics of the file.
                connection.execute(f"SELECT max(hash(COLUMNS(*))) FROM {parquet(path.resolve())}").fetchall()  # noqa: S608
            except UNREADABLE as error:
                found[name] = str(error).split("\n")[0]
    return found


def _require_columns(connection: duckdb.DuckDBPyConnection, source: Source | None, path: Path) -> None:
    """Raise one of `UNREADABLE` unless a table has the columns of its source and those that its metadata describes."""
    names = list(about(connection, path))
    if source is not None:
        names += connection.sql(empty(source)).columns
    if names:
        connection.execute(f"SELECT {', '.join(map(quoted, names))} FROM {parquet(path)} LIMIT 0")  # noqa: S608 - quoted names


def create_failing_view(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], reason: str
) -> None:
    """Create or replace a view with these columns and SQL types that fails with the reason when it is read."""
    fails = f"error({text(reason)})"
    # Every column fails, not only the condition: DuckDB leaves out a condition beside one that is never true, and
    # `host = 'a'` is never true for a constant NULL.
    failing = ", ".join(f"{fails}::{kind} AS {quoted(column)}" for column, kind in columns.items())
    connection.execute(f"CREATE OR REPLACE VIEW {quoted(name)} AS SELECT {failing} WHERE {fails} IS NULL")


def replace_damaged(connection: duckdb.DuckDBPyConnection, damaged: Mapping[str, str]) -> None:
    """Replace the views of damaged tables, which are empty or absent, and views that need them, by failing ones."""
    names = "SELECT table_name FROM information_schema.tables"
    known = {name.lower(): name for (name,) in connection.execute(names).fetchall()}
    ours = {name: why for name, why in damaged.items() if catalogue.find(name) or name.lower() not in known}
    for name in dict.fromkeys([*ours, *known.values()]):
        table = name if name in ours else min(tables_of(name) & ours.keys(), default=None)
        if table is None:
            continue
        columns = {"damaged": "VARCHAR"}
        if name.lower() in known:
            columns = {row[0]: row[1] for row in connection.execute(f"DESCRIBE {quoted(name)}").fetchall()}
        create_failing_view(connection, name, columns, f"the table {table} is damaged: {ours[table]}")
        if name == table:
            connection.execute(f"COMMENT ON VIEW {quoted(name)} IS {text(DAMAGED)}")


def replaced_tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """The damaged tables that `replace_damaged` replaced."""
    query = "SELECT view_name FROM duckdb_views() WHERE comment = ? ORDER BY view_name"
    return [name for (name,) in connection.execute(query, [DAMAGED]).fetchall()]


def changed_tables(connection: duckdb.DuckDBPyConnection, record: Record, sql: str) -> list[str]:
    """The tables that a query may read and that do not match their hash in the manifest; none without a manifest."""
    return mismatches(record, _words_with_views(connection, sql)) or []


def mismatches(record: Record, names: Container[str]) -> list[str] | None:
    """The tables among `names` (in lower case) that differ from their hash in the manifest; None without a manifest."""
    try:
        entries = {entry.path: entry for entry in read(record.path / MANIFEST, Manifest).files}
    except RecordError:
        return None
    changed = []
    for name, path in record.series_files().items():
        if name.lower() in names:
            entry = entries.get(f"series/{path.name}")
            if entry is None or size_and_hash(path) != (entry.size, entry.sha256):
                changed.append(name)
    return changed


def _words_with_views(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """The words of a query and, recursively, of the views it names: every table it reads is among them."""
    found = connection.execute("SELECT lower(view_name), lower(sql) FROM duckdb_views() WHERE NOT internal").fetchall()
    views: dict[str, str] = dict(found)
    used: set[str] = set()
    waiting = WORD.findall(sql.lower())
    while waiting:
        word = waiting.pop()
        if word not in used:
            used.add(word)
            waiting += WORD.findall(views.get(word, ""))
    return used
