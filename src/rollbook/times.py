"""The two time formats of records: ISO 8601 in UTC inside files, and the stamp in their names."""

from __future__ import annotations

import datetime as dt
import re

__all__ = ["STAMP", "from_ns", "from_stamp", "iso_now", "iso_time", "stamp"]

STAMP = re.compile(r"\d{8}_\d{6}", re.ASCII)
"""The form of a stamp."""
_STAMP_FORMAT = "%Y%m%d_%H%M%S"


def from_ns(at_ns: int) -> dt.datetime:
    """Convert nanoseconds since 1970 to a UTC time, whole seconds only."""
    return dt.datetime.fromtimestamp(at_ns // 10**9, dt.UTC)


def iso_time(at: dt.datetime | int) -> str:
    """Format a UTC time, or nanoseconds since 1970, as `2026-11-16T02:22:27Z`."""
    return (from_ns(at) if isinstance(at, int) else at).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_now() -> str:
    """Format the current time as `iso_time` does."""
    return iso_time(dt.datetime.now(dt.UTC))


def stamp(at: dt.datetime) -> str:
    """Format a time as `20261116_022227`, the name of a record directory."""
    return at.strftime(_STAMP_FORMAT)


def from_stamp(text: str) -> dt.datetime:
    """The time of a stamp, without a time zone; raises `ValueError` for any other text."""
    return dt.datetime.strptime(text, _STAMP_FORMAT)  # noqa: DTZ007 - records use UTC, other tools local time
