"""A benchmark's own results as rows: the one place that reads the metrics an adapter stored in a record's metadata."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

__all__ = ["Better", "Result", "results_of"]

Better = Literal["high", "low", ""]
"""The direction that is better; empty if it is not known."""

# By the end of a metric's name: unit and better direction. The first that fits counts.
KINDS: tuple[tuple[str, str, Better], ...] = (
    (r"bandwidth_bytes_per_second|bytes_per_second", "B/s", "high"),
    (r"iops", "1/s", "high"),
    (r"wall_seconds", "s", "low"),
    (r"samples_per_second|tokens_per_second|_per_second|_per_sec|_qps|throughput", "1/s", "high"),
    (r"(?:latency|clat|lat|time|duration|p\d+)\w*_ns", "ns", "low"),
    (r"(?:latency|time|duration|p\d+)\w*_us", "us", "low"),
    (r"(?:latency|time|duration|p\d+)\w*_ms", "ms", "low"),
    (r"(?:latency|time|duration|p\d+)\w*(?:_s|_sec|_seconds)", "s", "low"),
    (r"\w*(?:au|utilization|hit_rate)\w*_percentage", "%", "high"),
    (r"percentage|percent", "%", ""),
    (r"_gb_per_second|_gbps|GB_per_second|_gibs", "GB/s", "high"),
    (r"seconds", "s", "low"),
)
PATTERNS = [
    (re.compile(rf"(?:\w*?(?:{pattern}))(?:_mean|_avg|_median)?"), unit, better) for pattern, unit, better in KINDS
]
SPREAD = re.compile(r"\w*(?:stdev|stddev|variance)\w*")
IGNORED = ("exit_code", "error", "group", "num_accelerators", "num_hosts", "potential_caching")


class Result(NamedTuple):
    """One value that the benchmark reported about itself. `job` is empty if it has only one."""

    job: str
    metric: str
    value: float
    unit: str
    better: Better


def results_of(metrics: Any, runtime: float | None = None) -> list[Result]:
    """The numbers in the metrics of a record's metadata; with `runtime`, also the wall time of the command.

    Lists of numbers are left out: their mean is another metric of the same benchmark.
    """
    found: dict[tuple[str, str], Result] = {}
    if isinstance(metrics, dict):
        for job, name, value in _numbers(metrics):
            found.setdefault((job, name), Result(job, name, value, *_kind(name)))
    if runtime is not None and not any(name == "wall_seconds" for _, name in found):
        found["", "wall_seconds"] = Result("", "wall_seconds", runtime, "s", "low")
    return list(found.values())


def _numbers(metrics: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    jobs = metrics.get("jobs")
    if isinstance(jobs, list):
        names: Counter[str] = Counter()
        for job in (job for job in jobs if isinstance(job, dict)):
            name = " ".join(str(job[key]) for key in ("job", "host") if job.get(key) is not None)
            names[name] += 1
            label = name if names[name] == 1 else f"{name} #{names[name]}"
            yield from ((label, metric, value) for metric, value in _flat(job))
    yield from (("", metric, value) for metric, value in _flat({k: v for k, v in metrics.items() if k != "jobs"}))


def _flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool) and name not in IGNORED:
            yield f"{before}{name}", float(value)


def _kind(metric: str) -> tuple[str, Better]:
    name = metric.rpartition(".")[2]
    for pattern, unit, better in PATTERNS:
        if pattern.fullmatch(name):
            return unit, "" if SPREAD.fullmatch(name) else better
    return "", ""
