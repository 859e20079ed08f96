"""Views that fail when they are read: unreadable data must not look like missing data."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from rollbook.tables.quoting import quoted, text

__all__ = ["create_failing_view"]


def create_failing_view(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str], reason: str
) -> None:
    """Create or replace a view with these columns and SQL types that fails with the reason."""
    fails = f"error({text(reason)})"
    # Every column fails, not only the condition: DuckDB leaves out a condition beside one that is never true, and
    # `host = 'a'` is never true for a constant NULL.
    failing = ", ".join(f"{fails}::{kind} AS {quoted(column)}" for column, kind in columns.items())
    connection.execute(f"CREATE OR REPLACE VIEW {quoted(name)} AS SELECT {failing} WHERE {fails} IS NULL")
