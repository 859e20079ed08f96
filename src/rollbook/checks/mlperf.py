"""MLPerf Storage's way to judge a run: issues that leave it CLOSED, make it OPEN, or INVALID; the worst counts.

Rules of Rollbook that speak for MLPerf Storage put an `Issue` into the evidence of their finding; the verdict of a
record is the worst of them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rollbook.checks.model import CannotTell, Finding, Findings, Severity
from rollbook.checks.subject import Subject
from rollbook.hosts import fold
from rollbook.records.cluster import HostMemoryInfo
from rollbook.records.hosts import HostRecord
from rollbook.sources.cgroup_limits import CgroupLimits
from rollbook.sources.meminfo import MemInfo

__all__ = [
    "GIB",
    "Issue",
    "Memory",
    "Validation",
    "finding",
    "memory_of",
    "need_all_memory",
    "parameter",
    "verdict",
    "verdict_of",
    "whole",
]

GIB = 1024**3


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
    overrides = metadata.get("override_parameters") or {}
    for name in names:
        if name in overrides:
            return overrides[name]
        at: Any = metadata.get("parameters") or {}
        for part in name.split("."):
            at = at.get(part) if isinstance(at, Mapping) else None
        if at is not None:
            return at
    return None


def whole(value: Any, name: str) -> int:
    """A parameter that must be a positive whole number."""
    try:
        number = int(value)
    except (TypeError, ValueError):
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
    known = [HostMemoryInfo.of(memory, _limits(host)) for host, memory in run.each(MemInfo)]
    cluster = run.metadata.get("system_info") or run.metadata.get("cluster_information") or {}
    looked_at = cluster.get("collection_method") not in (None, "unknown", "args", "dlio_summary")
    stated = cluster.get("total_memory_bytes") if looked_at else None
    args = run.metadata.get("args") or {}
    each, count = args.get("client_host_memory_in_gb"), args.get("num_client_hosts") or len(run.start)
    sizes = run.summary.get("host_memory_GB")
    return Memory(
        hosts=len(known) or len(run.start) or int(cluster.get("num_hosts") or 0),
        measured=sum(memory.total for memory in known) if known else stated or None,
        limited=sum(memory.usable for memory in known) if known else None,
        declared=int(each * count * GIB) if isinstance(each, int | float) and count else None,
        reported=int(sum(sizes) * GIB) if isinstance(sizes, list) and sizes else None,
    )


def need_all_memory(run: Subject) -> None:
    """Raise `CannotTell` where a client's memory is not known: what was found fine without it may not be with it."""
    known = {host.name for host, _ in run.each(MemInfo)}
    silent = [host.name for host in run.start if host.name not in known]
    if silent:
        raise CannotTell(f"nobody measured the memory of {fold(silent)}")


def _limits(host: HostRecord) -> CgroupLimits | None:
    limits = host.facts.get("cgroup_limits")
    return limits if isinstance(limits, CgroupLimits) else None
