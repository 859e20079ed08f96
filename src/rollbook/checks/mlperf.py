"""MLPerf Storage's verdict on a run: CLOSED, OPEN or INVALID, the worst of all issues.

Rules for MLPerf Storage put an `Issue` into the evidence of their findings.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import msgspec

from rollbook.checks.run_data import RunData
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
    "finding_for",
    "is_measured",
    "is_size",
    "memory_of",
    "parameter",
    "positive_integer",
    "require_all_memory",
    "verdict",
    "verdict_of",
]

GIB = 1024**3
# Collection methods that did not measure every host: declared by the user or DLIO, or taken from the local machine.
NOT_MEASURED = {"unknown", "args", "dlio_summary", "local_fallback"}


class Validation(enum.Enum):
    """The effect of an issue on a submission."""

    CLOSED = "closed"
    OPEN = "open"
    INVALID = "invalid"


class Issue(msgspec.Struct, frozen=True):
    """One issue with the fields that MLPerf Storage uses."""

    validation: Validation
    message: str
    parameter: str | None = None
    expected: Any = None
    actual: Any = None
    severity: str = "error"


def verdict(issues: Iterable[Issue]) -> Validation:
    """INVALID if any issue is INVALID, else OPEN if any is OPEN, else CLOSED."""
    found = {issue.validation for issue in issues}
    return next((worst for worst in (Validation.INVALID, Validation.OPEN) if worst in found), Validation.CLOSED)


def finding_for(issue: Issue, hosts: Iterable[str] = (), **evidence: Any) -> Finding:
    """The finding for an issue: a failure if it makes the run INVALID, else a warning."""
    severity: Severity = "fail" if issue.validation is Validation.INVALID else "warn"
    evidence = {"issue": msgspec.to_builtins(issue), **evidence}
    return Finding(message=issue.message, hosts=list(hosts), severity=severity, evidence=evidence)


def verdict_of(findings: Findings) -> Validation:
    """The verdict of a record, from the issues in its findings; silenced findings count too."""
    issues = (one.evidence.get("issue") for result in findings.rules for one in result.findings)
    return verdict(msgspec.convert(issue, Issue) for issue in issues if issue)


def parameter(metadata: Mapping[str, Any], *names: str) -> Any:
    """The value of the first of these dotted parameters that the run has, overrides first; None if it has none."""
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


def positive_integer(value: Any, name: str) -> int:
    """A positive integer, also from a string; raises `CannotTell` if it is not one."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise CannotTell(f"the record has no {name}") from None
    if number <= 0:
        raise CannotTell(f"{name} is {number}")
    return number


class Memory(msgspec.Struct, frozen=True):
    """The memory of all clients in bytes, from different origins; None if unknown.

    `limited` is the limit of the cgroups, `declared` the user's argument times the number of hosts, `reported` the sum
    in DLIO's summary.
    """

    hosts: int
    measured: int | None
    limited: int | None
    declared: int | None
    reported: int | None

    @property
    def effective(self) -> tuple[str, int] | None:
        """Origin and value that rules use: measured, else reported by DLIO, else declared by the user."""
        named = {"measured": self.measured, "reported": self.reported, "declared": self.declared}
        return next(((name, value) for name, value in named.items() if value is not None), None)

    def describe(self) -> str:
        """All origins with their values."""
        named = {
            "measured": self.measured,
            "limited by cgroups": self.limited,
            "declared": self.declared,
            "reported by DLIO": self.reported,
        }
        return ", ".join(
            f"{name} {'unknown' if value is None else f'{value / GIB:.1f} GiB'}" for name, value in named.items()
        )


def memory_of(run: RunData) -> Memory:
    """The memory of the clients, from every origin that the record has."""
    measured = [HostMemoryInfo.of(memory, host.fact(CgroupLimits)) for host, memory in run.each(MemInfo)]
    cluster = _table(run.metadata.get("system_info") or run.metadata.get("cluster_information"))
    stated = (
        cluster.get("total_memory_bytes") if is_measured(str(cluster.get("collection_method", "unknown"))) else None
    )
    args = _table(run.metadata.get("args"))
    each, count, hosts = (args.get(name) for name in ("client_host_memory_in_gb", "num_client_hosts", "hosts"))
    clients = count if is_size(count) and count else len(run.start) or (len(hosts) if isinstance(hosts, list) else 0)
    number, sizes = cluster.get("num_hosts"), run.summary.get("host_memory_GB")
    return Memory(
        hosts=len(measured) or len(run.start) or (int(number) if is_size(number) else 0),
        measured=sum(one.total for one in measured)
        if measured
        else int(stated)
        if is_size(stated) and stated
        else None,
        limited=sum(one.usable for one in measured) if measured else None,
        declared=int(each * clients * GIB) if is_size(each) and clients else None,
        reported=int(sum(sizes) * GIB) if isinstance(sizes, list) and sizes and all(map(is_size, sizes)) else None,
    )


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def is_measured(method: str) -> bool:
    """Whether `collection_method` of a cluster means that all its hosts were measured."""
    return not set(method.split("+")) & NOT_MEASURED


def is_size(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a finite number of at least zero."""
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def require_all_memory(run: RunData) -> None:
    """Raise `CannotTell` if the memory of a client is unknown: the result could differ with it."""
    measured = {host.name for host, _ in run.each(MemInfo)}
    missing = [host.name for host in run.start if host.name not in measured]
    if missing:
        raise CannotTell(f"memory not measured on {fold(missing)}")
