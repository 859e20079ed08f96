"""The two time formats of records: ISO 8601 in UTC inside files, and the stamp in their names."""

from __future__ import annotations

import datetime as dt

__all__ = ["from_ns", "iso_now", "iso_time", "stamp"]


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
    return at.strftime("%Y%m%d_%H%M%S")
