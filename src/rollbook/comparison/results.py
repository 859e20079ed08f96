"""The results of a benchmark that can be compared: numbers of the whole run, with the direction that is better."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rollbook.comparison.model import Kind
from rollbook.comparison.statistics import Better
from rollbook.records.results import Result, results_of

__all__ = ["Key", "compared_results"]

HIGH = re.compile(r"per_second|per_sec|iops|qps|throughput|bandwidth|_au_|hit_rate|recall")
LOW = re.compile(r"latency|clat|_lat_|(?:time|seconds|duration|_ns|_us|_ms|_s)(?:_mean|_avg|_median)?$|error")
SPREAD = re.compile(r"stdev|stddev|variance|epoch")
IGNORED = re.compile(r"exit_code|num_\w+|potential_caching")


@dataclasses.dataclass(frozen=True)
class Key:
    """What a number is: its kind as in `Row`, its name, title, unit, and the direction that is better.

    The name is unique in its run, with the job and host if there are several. `main` results are those that a summary
    states.
    """

    kind: Kind
    name: str
    title: str
    unit: str
    better: Better
    main: bool = False


def compared_results(metadata: Mapping[str, Any]) -> Iterator[tuple[Key, float]]:
    """The numbers in a record's metadata, and the wall time of its command; lists with a value per epoch are left out.

    Jobs of the same name are numbered.
    """
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
        yield Key("result", name, title, one.unit, _better(one), one.is_main), one.value
    seconds = metadata.get("runtime")
    timed = metadata.get("executed_command") and isinstance(seconds, int | float)
    if timed and ".wall_seconds" not in seen:
        yield Key("result", "wall_seconds", "wall_seconds", "s", "low", main=True), float(seconds or 0)


def _better(one: Result) -> Better:
    if SPREAD.search(one.metric):
        return ""
    return "high" if HIGH.search(one.metric) else "low" if LOW.search(one.metric) else ""
