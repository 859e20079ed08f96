"""Errors of DuckDB as text for people."""

from __future__ import annotations

import json
import re

import duckdb
import msgspec

__all__ = ["UNREADABLE", "reason_of"]

UNREADABLE = (duckdb.Error, UnicodeDecodeError, msgspec.MsgspecError)
"""What reading a damaged table raises: also errors whose message has bytes of it, and those of its own metadata."""

INNER = re.compile(r'"exception_message":("(?:[^"\\]|\\.)*")')


def reason_of(error: Exception) -> str:
    """The message of an error; of one that quotes another as JSON, such as that of a full disk, only the inner one."""
    inner = INNER.search(str(error))
    return str(json.loads(inner[1])) if inner else str(error)
