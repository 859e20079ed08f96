"""Values of a run that MLPerf Storage's rules read: parameters, arguments and sizes, which anyone may have written."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell

__all__ = [
    "GIB",
    "cluster_of",
    "is_size",
    "number",
    "parameter",
    "parameter_or_argument",
    "positive_integer",
    "seconds_between",
    "table",
    "text_of",
    "time_of",
]

GIB = 1024**3


def parameter(metadata: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these dotted parameters that the run has, overrides first; None if it has none."""
    overrides = table(metadata.get("override_parameters"))
    for name in names:
        if name in overrides:
            return overrides[name]
        at: Any = metadata.get("parameters")
        for part in name.split("."):
            at = table(at).get(part)
        if at is not None:
            return at
    return None


def parameter_or_argument(metadata: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these parameters, or else of the benchmark's arguments; None if it has neither."""
    value = parameter(metadata, *names)
    args = table(metadata.get("args"))
    return next((args[name] for name in names if args.get(name) is not None), None) if value is None else value


def text_of(run: RunData, name: str, argument: str = "") -> str:
    """Return a text of the metadata, such as the model, or an argument of the benchmark.

    Raises `CannotTell` if it is not recorded.
    """
    found = str(run.metadata.get(name) or (parameter_or_argument(run.metadata, argument) if argument else "") or "")
    if not found:
        raise CannotTell(f"the {name} is not recorded")
    return found


def positive_integer(value: Any, name: str) -> int:
    """Return a positive integer, also from text; raises `CannotTell` for anything else."""
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        raise CannotTell(f"{name} is not recorded") from None
    if count <= 0:
        raise CannotTell(f"{name} is {count}")
    return count


def number(value: Any, name: str) -> float:
    """Return a finite number, also from text; raises `CannotTell` for anything else."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise CannotTell(f"{name} is not recorded") from None
    if not math.isfinite(found) or isinstance(value, bool):
        raise CannotTell(f"{name} is {value}")
    return found


def time_of(value: Any) -> dt.datetime | None:
    """Return the time in an ISO text, None for anything else. The times of DLIO are local and have no zone."""
    try:
        return dt.datetime.fromisoformat(str(value))
    except ValueError:
        return None


def seconds_between(start: dt.datetime, end: dt.datetime) -> float:
    """Return the seconds between two times; raises `CannotTell` if only one of them has a time zone."""
    if (start.tzinfo is None) != (end.tzinfo is None):
        raise CannotTell(f"only one of {start} and {end} has a time zone")
    return (end - start).total_seconds()


def is_size(value: Any) -> TypeGuard[int | float]:
    """Whether the value is a finite number of at least zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0 and (isinstance(value, int) or math.isfinite(value))


def table(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def cluster_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the cluster information in the metadata of a run; empty if there is none."""
    return table(metadata.get("system_info") or metadata.get("cluster_information"))
