"""MLPerf Storage's way to judge a run: issues that leave it CLOSED, make it OPEN, or INVALID; the worst counts.

Rules of Rollbook that speak for MLPerf Storage put an `Issue` into the evidence of their finding; the verdict of a
record is the worst of them.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import msgspec

from rollbook.checks.subject import Subject
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.cluster import HostMemoryInfo
from rollbook.records.findings import Finding, Findings, Severity
from rollbook.sources.cgroup_limits import CgroupLimits
from rollbook.sources.meminfo import MemInfo

__all__ = [
    "GIB",
    "Issue",
    "Memory",
    "Validation",
    "finding",
    "looked_at",
    "memory_of",
    "need_all_memory",
    "parameter",
    "sized",
    "verdict",
    "verdict_of",
    "whole",
]

GIB = 1024**3
# Ways to know of hosts without a look at each: nobody said, the user did, DLIO did, or this machine stood for all.
NOT_LOOKED_AT = {"unknown", "args", "dlio_summary", "local_fallback"}


class Validation(enum.Enum):
    """What an issue means for a submission."""

    CLOSED = "closed"
    OPEN = "open"
    INVALID = "invalid"


class Issue(msgspec.Struct, frozen=True):
    """One issue, with MLPerf Storage's own fields."""

    validation: Validation
    message: str
    parameter: str | None = None
    expected: Any = None
    actual: Any = None
    severity: str = "error"


def verdict(issues: Iterable[Issue]) -> Validation:
    """Any INVALID makes it INVALID, else any OPEN makes it OPEN, else it is CLOSED."""
    found = {issue.validation for issue in issues}
    return next((worst for worst in (Validation.INVALID, Validation.OPEN) if worst in found), Validation.CLOSED)


def finding(issue: Issue, hosts: Iterable[str] = (), **evidence: Any) -> Finding:
    """The finding that an issue is: a failure where it makes the run INVALID, else a warning."""
    severity: Severity = "fail" if issue.validation is Validation.INVALID else "warn"
    told = {"issue": msgspec.to_builtins(issue), **evidence}
    return Finding(message=issue.message, hosts=list(hosts), severity=severity, evidence=told)


def verdict_of(findings: Findings) -> Validation:
    """The verdict of a record, from the issues among its findings; silenced ones count, silence is no exemption."""
    told = (one.evidence.get("issue") for result in findings.rules for one in result.findings)
    return verdict(msgspec.convert(issue, Issue) for issue in told if issue)


def parameter(metadata: Mapping[str, Any], *names: str) -> Any:
    """The first of these dotted parameters that the run has, overrides first; None if it has none."""
    overrides = _table(metadata.get("override_parameters"))
    for name in names:
        if name in overrides:
            return overrides[name]
        at: Any = metadata.get("parameters")
        for part in name.split("."):
            at = _table(at).get(part)
        if at is not None:
            return at
    return None


def whole(value: Any, name: str) -> int:
    """A positive whole number, also as it was typed; raises `CannotTell` where it is none."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise CannotTell(f"the record does not say {name}") from None
    if number <= 0:
        raise CannotTell(f"{name} is {number}")
    return number


class Memory(msgspec.Struct, frozen=True):
    """The memory of all clients in bytes, by who says so; None where nobody does.

    `limited` is what control groups leave to the job; `declared` is what the user typed, per host and times hosts;
    `reported` is the sum in DLIO's summary, which is right even where its positions are not.
    """

    hosts: int
    measured: int | None
    limited: int | None
    declared: int | None
    reported: int | None

    @property
    def judged(self) -> tuple[str, int] | None:
        """The one that rules go by: what was measured, else what DLIO reports, else what the user declared."""
        named = {"measured": self.measured, "reported": self.reported, "declared": self.declared}
        return next(((name, value) for name, value in named.items() if value is not None), None)

    def said(self) -> str:
        """All of them side by side."""
        named = {
            "measured": self.measured,
            "limited by cgroups": self.limited,
            "declared": self.declared,
            "reported by DLIO": self.reported,
        }
        return ", ".join(
            f"{name} {'unknown' if value is None else f'{value / GIB:.1f} GiB'}" for name, value in named.items()
        )


def memory_of(run: Subject) -> Memory:
    """Every statement about the clients' memory that the record holds."""
    known = [HostMemoryInfo.of(memory, host.fact(CgroupLimits)) for host, memory in run.each(MemInfo)]
    cluster = _table(run.metadata.get("system_info") or run.metadata.get("cluster_information"))
    stated = cluster.get("total_memory_bytes") if looked_at(str(cluster.get("collection_method", "unknown"))) else None
    args = _table(run.metadata.get("args"))
    each, count, hosts = (args.get(name) for name in ("client_host_memory_in_gb", "num_client_hosts", "hosts"))
    clients = count if sized(count) and count else len(run.start) or (len(hosts) if isinstance(hosts, list) else 0)
    number, sizes = cluster.get("num_hosts"), run.summary.get("host_memory_GB")
    return Memory(
        hosts=len(known) or len(run.start) or (int(number) if sized(number) else 0),
        measured=sum(memory.total for memory in known) if known else int(stated) if sized(stated) and stated else None,
        limited=sum(memory.usable for memory in known) if known else None,
        declared=int(each * clients * GIB) if sized(each) and clients else None,
        reported=int(sum(sizes) * GIB) if isinstance(sizes, list) and sizes and all(map(sized, sizes)) else None,
    )


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def looked_at(method: str) -> bool:
    """Whether a cluster's `collection_method` says that all its hosts were looked at."""
    return not set(method.split("+")) & NOT_LOOKED_AT


def sized(value: Any) -> TypeGuard[int | float]:
    """Whether it is a size or a count that can be reckoned with."""
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def need_all_memory(run: Subject) -> None:
    """Raise `CannotTell` where a client's memory is not known: what was found fine without it may not be with it."""
    known = {host.name for host, _ in run.each(MemInfo)}
    silent = [host.name for host in run.start if host.name not in known]
    if silent:
        raise CannotTell(f"nobody measured the memory of {fold(silent)}")
