"""Quoting for SQL: any name or text that a host sends stays a name or a text."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["literal", "parquet", "quoted", "text"]


def quoted(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: object) -> str:
    """A quoted SQL string."""
    return "'" + str(value).replace("'", "''") + "'"


def literal(path: Path | str) -> str:
    """A path with wildcards escaped, for functions that expect a glob pattern."""
    return re.sub(r"([*?[])", r"[\1]", str(path))


def parquet(path: Path | str) -> str:
    """A Parquet file as a SQL table; a directory named `host=a` in its path does not become a column."""
    return f"read_parquet({text(literal(path))}, hive_partitioning = false)"
