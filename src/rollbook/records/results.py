"""The results of a benchmark as rows: one for each job, phase and metric, with its unit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

__all__ = ["Result", "results_of"]

UNITS = (
    ("_bytes_per_second", "B/s"),
    ("_samples_per_second", "samples/s"),
    ("_MB_per_second", "MB/s"),
    ("_GB_per_second", "GB/s"),
    ("_per_second", "1/s"),
    ("_iops", "1/s"),
    ("_qps", "1/s"),
    ("_percentage", "%"),
    ("_bytes", "B"),
    ("_GB", "GB"),
    ("_seconds", "s"),
    ("_ns", "ns"),
    ("_us", "us"),
    ("_ms", "ms"),
)
"""The units of metrics by the ends of their names; the first that fits."""

LABELS = ("job", "host", "group")
DEEPEST = 8
DETAILS = re.compile(r"error|stdev|_p50|_p95|_max_ns|_bytes$|exit_code")
"""Metrics that a summary leaves out."""


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """One value of a benchmark. `text` is set instead of `value` if it is not a number.

    `job` and `host` are empty for a benchmark without jobs; `phase` is the phase of the record that it belongs to, or
    `epoch 1` and so on.
    """

    metric: str
    value: float | None = None
    unit: str = ""
    job: str = ""
    host: str = ""
    phase: str = ""
    text: str = ""

    @property
    def is_main(self) -> bool:
        """Whether a summary states it."""
        return not self.phase.startswith("epoch ") and not DETAILS.search(self.metric)


def results_of(metadata: Mapping[str, Any]) -> list[Result]:
    """The results in a record's metadata, in the order in which the benchmark gives them."""
    metrics = metadata.get("metrics")
    if not isinstance(metrics, dict):
        return []
    phases = {str(phase.get("name")) for phase in metadata.get("phases") or [] if isinstance(phase, dict)}
    found: list[Result] = []
    jobs = metrics.get("jobs")
    for job in jobs if isinstance(jobs, list) else []:
        if isinstance(job, dict):
            name, host = str(job.get("job", "")), str(job.get("host", ""))
            rest = {key: value for key, value in job.items() if key not in LABELS}
            found += _rows(rest, name, host, name if name in phases else "")
    rest = {name: value for name, value in metrics.items() if name != "jobs" or not isinstance(value, list)}
    return [*found, *_rows(rest)]


def _rows(
    metrics: Mapping[str, Any], job: str = "", host: str = "", phase: str = "", depth: int = 0
) -> Iterator[Result]:
    """One row for each value; members of an object are named `object.member`, lists have a value for each epoch.

    Objects that are nested deeper than any benchmark's are left out, and so are numbers without a float.
    """
    for name, value in metrics.items():
        unit = next((unit for end, unit in UNITS if name.endswith(end)), "")
        if isinstance(value, bool | str):
            yield Result(name, None, unit, job, host, phase, str(value).lower() if isinstance(value, bool) else value)
        elif _is_number(value):
            yield Result(name, float(value), unit, job, host, phase)
        elif isinstance(value, dict) and depth < DEEPEST:
            yield from _rows({f"{name}.{key}": one for key, one in value.items()}, job, host, phase, depth + 1)
        elif isinstance(value, list) and all(map(_is_number, value)):
            for number, one in enumerate(value, 1):
                yield Result(name, float(one), unit, job, host, f"epoch {number}")


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 1000)
