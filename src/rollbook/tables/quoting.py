"""Names and texts as SQL has them; whatever a host calls its things, it stays a name or a text."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["literal", "parquet", "quoted", "text"]


def quoted(name: str) -> str:
    """A name in SQL."""
    return '"' + name.replace('"', '""') + '"'


def text(value: object) -> str:
    """A text in SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def literal(path: Path | str) -> str:
    """A path that is taken for itself where a pattern is asked for."""
    return re.sub(r"([*?[])", r"[\1]", str(path))


def parquet(path: Path | str) -> str:
    """A Parquet file in SQL; a directory on the way to it that is called `host=a` is a directory, and no column."""
    return f"read_parquet({text(literal(path))}, hive_partitioning = false)"
