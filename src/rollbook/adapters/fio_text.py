"""fio's report for people (fio(1), OUTPUT), for runs without a JSON report; numbers are as rounded as fio prints."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

__all__ = ["parse_text"]

_NUMBER = r"\d{1,15}(?:\.\d{1,15})?"
_JOB = re.compile(r"^(?P<name>.+): \(groupid=(?P<group>\d{1,9}), jobs=\d+\): err=\s*(?P<error>\d{1,9})\b", re.MULTILINE)
_FLOW = re.compile(
    rf"^\s+(?P<direction>read|write|trim): IOPS=(?P<iops>{_NUMBER})(?P<scale>[kMG]?), "
    rf"BW=(?P<bw>{_NUMBER})(?P<unit>[KMGT]?i?B)/s.*?\((?P<io>{_NUMBER})(?P<io_unit>[KMGT]?i?B)/\d+msec\)",
    re.MULTILINE,
)
_MAX = re.compile(
    rf"^\s+clat \((?P<unit>[num]?sec)\): min=\s*[\d.]+k?, max=\s*(?P<max>{_NUMBER})(?P<k>k?),", re.MULTILINE
)
_PERCENTILES = re.compile(r"clat percentiles \((?P<unit>[num]?sec)\):\n(?P<rows>(?:\s+\|.*\n?)+)")
_PERCENTILE = re.compile(r"(?P<at>[\d.]+)th=\[\s*(?P<value>\d{1,15})\]")
_COUNTS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_NS = {"nsec": 1, "usec": 10**3, "msec": 10**6, "sec": 10**9}
_WANTED = {"50.00": "p50", "95.00": "p95", "99.00": "p99"}


def parse_text(text: str) -> list[dict[str, Any]]:
    """The metrics of each job, under the names of the JSON report; empty if the text has no job that ended."""
    found: list[dict[str, Any]] = []
    jobs = list(_JOB.finditer(text))
    for job, following in itertools.zip_longest(jobs, jobs[1:]):
        end = following.start() if following else text.find("\nRun status group", job.end())
        part = text[job.end() : end if end >= 0 else len(text)]
        metrics: dict[str, Any] = {
            "job": job["name"].strip(),
            "group": int(job["group"]),
            "error": int(job["error"]),
        }
        flows = list(_FLOW.finditer(part))
        for flow, after in itertools.zip_longest(flows, flows[1:]):
            metrics |= _direction(flow, part[flow.end() : after.start() if after else len(part)])
        found.append(metrics)
    return found


def _direction(flow: re.Match[str], details: str) -> dict[str, Any]:
    name = flow["direction"]
    found: dict[str, Any] = {
        f"{name}_bandwidth_bytes_per_second": _bytes(flow["bw"], flow["unit"]),
        f"{name}_bytes": _bytes(flow["io"], flow["io_unit"]),
        f"{name}_iops": float(flow["iops"]) * _COUNTS[flow["scale"]],
    }
    if percentiles := _PERCENTILES.search(details):
        for one in _PERCENTILE.finditer(percentiles["rows"]):
            if at := _WANTED.get(one["at"]):
                found[f"{name}_clat_{at}_ns"] = int(one["value"]) * _NS[percentiles["unit"]]
    if most := _MAX.search(details):
        found[f"{name}_clat_max_ns"] = round(float(most["max"]) * (1000 if most["k"] else 1) * _NS[most["unit"]])
    return found


def _bytes(value: str, unit: str) -> int:
    base = 1024 if "i" in unit else 1000
    power: int = _POWERS[unit.rstrip("Bi")]
    return round(float(value) * math.pow(base, power))
