"""Errors of DuckDB as text for people."""

from __future__ import annotations

import json
import re

import duckdb
import msgspec

__all__ = ["UNREADABLE", "reason_of"]

UNREADABLE = (duckdb.Error, UnicodeDecodeError, msgspec.MsgspecError, OverflowError)
"""Exceptions from reading a damaged table.

They are those of DuckDB, and those for a message that is not UTF-8, for invalid metadata and for a number of more than
64 bits.
"""

INNER = re.compile(r'"exception_message":("(?:[^"\\]|\\.)*")')


def reason_of(error: Exception) -> str:
    """The message of an error; if it quotes another error as JSON, as for a full disk, only the inner message."""
    inner = INNER.search(str(error))
    return str(json.loads(inner[1])) if inner else str(error)
