"""The results of a benchmark that can be compared: numbers of the whole run, with the direction that is better."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from rollbook.records.results import Result, results_of

__all__ = ["Better", "ComparedResult", "compared_results"]

Better = Literal["high", "low", ""]
"""The direction that is better; empty if it is not known."""

HIGH = re.compile(r"per_second|per_sec|iops|qps|throughput|bandwidth|_au_|hit_rate|recall")
LOW = re.compile(r"latency|clat|_lat_|(?:time|seconds|duration|_ns|_us|_ms|_s)(?:_mean|_avg|_median)?$|error")
SPREAD = re.compile(r"stdev|stddev|variance|epoch")
IGNORED = re.compile(r"exit_code|num_\w+|potential_caching")


class ComparedResult(NamedTuple):
    """One number; `name` is unique in its run, with the job and host if there are several.

    `main` results are those that a summary states.
    """

    name: str
    title: str
    value: float
    unit: str
    better: Better
    main: bool


def compared_results(metadata: Mapping[str, Any]) -> list[ComparedResult]:
    """The numbers in a record's metadata, and the wall time of its command; lists with a value per epoch are left out.

    Jobs of the same name are numbered.
    """
    found: list[ComparedResult] = []
    seen: Counter[str] = Counter()
    for one in results_of(metadata):
        if one.value is None or one.phase.startswith("epoch ") or IGNORED.fullmatch(one.metric):
            continue
        job = " ".join(filter(None, (one.job, one.host)))
        seen[f"{job}.{one.metric}"] += 1
        if (number := seen[f"{job}.{one.metric}"]) > 1:
            job = f"{job} #{number}"
        name = f"{job}.{one.metric}" if job else one.metric
        title = f"{job}: {one.metric}" if job else one.metric
        found.append(ComparedResult(name, title, one.value, one.unit, _better(one), one.is_main))
    seconds = metadata.get("runtime")
    timed = metadata.get("executed_command") and isinstance(seconds, int | float)
    if timed and not any(one.name == "wall_seconds" for one in found):
        found.append(ComparedResult("wall_seconds", "wall_seconds", float(seconds or 0), "s", "low", main=True))
    return found


def _better(one: Result) -> Better:
    if SPREAD.search(one.metric):
        return ""
    return "high" if HIGH.search(one.metric) else "low" if LOW.search(one.metric) else ""
