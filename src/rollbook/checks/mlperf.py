"""MLPerf Storage's verdict on a run: issues that leave it CLOSED, make it OPEN, or make it INVALID.

Rules of Rollbook that judge for MLPerf Storage put an issue into the evidence of each finding (`finding_for`). `judge`
makes the verdict from them: INVALID if any issue is INVALID; no verdict while a rule that the round needs could not be
evaluated; otherwise the worst of the issues.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import msgspec

from rollbook.checks.mlperf_round import Round
from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.hosts import fold
from rollbook.records.cluster import HostMemoryInfo
from rollbook.records.findings import Finding, Findings, RuleResult
from rollbook.sources.cgroup_limits import CgroupLimits
from rollbook.sources.identity import Identity
from rollbook.sources.meminfo import MemInfo

__all__ = [
    "GIB",
    "Clients",
    "Memory",
    "Validation",
    "clients",
    "cluster_of",
    "finding_for",
    "is_measured",
    "is_measured_run",
    "is_size",
    "judge",
    "memory_of",
    "number",
    "parameter",
    "positive_integer",
    "preview_finding",
    "require_all_memory",
    "require_type",
    "round_of",
    "stated",
    "table",
    "text_of",
    "time_of",
    "verdict",
    "worst_issue",
]

GIB = 1024**3
# Collection methods that did not measure every host: unknown, the user's arguments, DLIO, the local machine for all.
NOT_MEASURED = {"unknown", "args", "dlio_summary", "local_fallback"}
RUN_COMMANDS = ("", "run")


class Validation(enum.Enum):
    """What an issue means for a submission."""

    CLOSED = "closed"
    OPEN = "open"
    INVALID = "invalid"


def verdict(validations: Iterable[Validation]) -> Validation:
    """Return the worst: INVALID before OPEN before CLOSED."""
    found = set(validations)
    return next((worst for worst in (Validation.INVALID, Validation.OPEN) if worst in found), Validation.CLOSED)


def worst_issue(rules: Iterable[RuleResult]) -> Validation:
    """Return the worst of the issues in the findings of rules; CLOSED without any."""
    issues = (finding.evidence.get("issue") for rule in rules for finding in rule.findings)
    return verdict(Validation(issue["validation"]) for issue in issues if issue)


def finding_for(
    validation: Validation,
    message: str,
    parameter: str,
    expected: Any = None,
    actual: Any = None,
    *,
    severity: str = "error",
    hosts: Iterable[str] = (),
    **evidence: Any,
) -> Finding:
    """Return the finding for an issue: a failure if it makes the run INVALID, else a warning.

    The issue in its evidence has MLPerf Storage's own fields; `severity` is one of them.
    """
    issue = {
        "validation": validation,
        "message": message,
        "parameter": parameter,
        "expected": expected,
        "actual": actual,
        "severity": severity,
    }
    return Finding(
        message=message,
        hosts=list(hosts),
        severity="fail" if validation is Validation.INVALID else "warn",
        evidence={"issue": msgspec.to_builtins(issue), **evidence},
    )


def judge(found: Findings, run: RunData) -> None:
    """Set verdict, round and missing inputs of a benchmark's findings. Silenced findings count.

    A command that only prepares (datasize, datagen) is not judged, which a note states.
    """
    rules = run.mlperf_round
    if rules is None:
        found.not_judged = ["a round of MLPerf Storage's rules"]
        return
    found.round = rules.name
    command = str(run.metadata.get("command") or "")
    if not is_measured_run(run.metadata):
        found.notes.append(f"MLPerf Storage: {command} is not a measured run and is not judged")
        return
    worst = worst_issue(found.rules)
    results = {result.id: result for result in found.rules}
    kind = str(run.metadata["benchmark_type"])
    needed = rules.needs[kind]
    missing = [f"{name}: {results[name].note}" for name in needed if name in results and results[name].is_incomplete]
    missing += [f"{name}: the rule was not run" for name in needed if name not in results]
    if kind in rules.without_rules:
        missing.append(f"rules for {kind}: {rules.without_rules[kind]}")
    if missing and worst is not Validation.INVALID:
        found.not_judged = missing
    else:
        found.verdict = worst.name


def is_measured_run(metadata: Mapping[str, Any]) -> bool:
    """Whether the command of a run is one whose result counts."""
    return str(metadata.get("command") or "") in RUN_COMMANDS


def round_of(run: RunData) -> Round:
    """Return the round to judge by; raises `CannotTell` without one."""
    if run.mlperf_round is None:
        raise CannotTell("no round of MLPerf Storage's rules was chosen")
    return run.mlperf_round


def require_type(run: RunData, *types: str) -> None:
    """Raise `NotApplicable` unless this is a measured run of one of these benchmark types."""
    if run.metadata.get("benchmark_type") not in types:
        raise NotApplicable(f"not a {' or '.join(types)} run")
    if not is_measured_run(run.metadata):
        raise NotApplicable(f"{run.metadata.get('command')} is not a measured run")


def preview_finding(benchmark: str) -> Finding:
    """The finding of a benchmark that the round only previews."""
    text = f"the {benchmark} benchmark is a preview and not accepted for CLOSED"
    return finding_for(Validation.OPEN, text, "benchmark_status", severity="info")


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


def stated(metadata: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these parameters, or else of the benchmark's arguments; None if it has neither."""
    value = parameter(metadata, *names)
    args = table(metadata.get("args"))
    return next((args[name] for name in names if args.get(name) is not None), None) if value is None else value


def text_of(run: RunData, name: str, argument: str = "") -> str:
    """Return a text of the metadata, such as the model, or an argument of the benchmark.

    Raises `CannotTell` if it is not recorded.
    """
    found = str(run.metadata.get(name) or (stated(run.metadata, argument) if argument else "") or "")
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
        found = dt.datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else found.astimezone()


def table(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def cluster_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the cluster information in the metadata of a run; empty if there is none."""
    return table(metadata.get("system_info") or metadata.get("cluster_information"))


class Clients(msgspec.Struct, frozen=True):
    """The client hosts of a run: how many, the slots that were given by name, and where the number comes from."""

    count: int
    slots: dict[str, int | None]
    origin: str


def clients(run: RunData) -> Clients:
    """Return the clients: those recorded, else those of the arguments, the cluster information or DLIO's summary.

    Raises `CannotTell` if none of them is there.
    """
    if run.start:
        return Clients(len(run.start), {host.name: host.slots for host in run.start}, "recorded")
    args = table(run.metadata.get("args"))
    if isinstance(args.get("hosts"), list) and args["hosts"]:
        named = {}
        for word in args["hosts"]:
            name, _, slots = str(word).partition(":")
            named[name] = int(slots) if slots.isdecimal() else None
        return Clients(len(named), named, "args.hosts")
    cluster = cluster_of(run.metadata)
    for value, origin in ((cluster.get("num_hosts"), "system_info"), (run.summary.get("num_hosts"), "summary.json")):
        if is_size(value) and value:
            return Clients(int(value), {}, origin)
    raise CannotTell("the client hosts are not recorded")


class Memory(msgspec.Struct, frozen=True):
    """The memory of all clients in bytes, by origin; None where it is unknown.

    `limited` is what control groups leave to the job; `declared` is what the user typed, per host and times hosts;
    `reported` is the sum in DLIO's summary, which is right even where its positions are not.
    """

    hosts: int
    measured: int | None
    limited: int | None
    declared: int | None
    reported: int | None

    @property
    def effective(self) -> tuple[str, int] | None:
        """The size that rules use, with its origin: measured, else reported by DLIO, else declared."""
        named = {"measured": self.measured, "reported": self.reported, "declared": self.declared}
        return next(((name, value) for name, value in named.items() if value is not None), None)

    def describe(self) -> str:
        """All of them as text."""
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
    """Return the clients' memory by origin. A machine with two names counts once."""
    sizes: dict[object, HostMemoryInfo] = {}
    for host, memory in run.each(MemInfo):
        identity = host.fact(Identity)
        machine, boot = (identity.machine_id, identity.boot_id) if identity else (host.machine_id, host.boot_id)
        name = host.hostname or host.name
        sizes[(name, machine, boot) if machine and boot else host.name] = HostMemoryInfo.of(
            memory, host.fact(CgroupLimits)
        )
    memories = list(sizes.values())
    cluster = cluster_of(run.metadata)
    total = cluster.get("total_memory_bytes") if is_measured(cluster) else None
    args = table(run.metadata.get("args"))
    each, count, hosts = (args.get(name) for name in ("client_host_memory_in_gb", "num_client_hosts", "hosts"))
    named = len(hosts) if isinstance(hosts, list) else 0
    number_of_clients = count if is_size(count) and count else len(run.start) or named
    reported = run.summary.get("host_memory_GB")
    return Memory(
        hosts=len(memories) or len(run.start) or _hosts_of(cluster) or _hosts_of(run.summary),
        measured=sum(one.total for one in memories) if memories else int(total) if is_size(total) and total else None,
        limited=sum(one.usable for one in memories) if memories else None,
        declared=int(each * number_of_clients * GIB) if is_size(each) and number_of_clients else None,
        reported=int(sum(reported) * GIB)
        if isinstance(reported, list) and reported and all(map(is_size, reported))
        else None,
    )


def _hosts_of(document: Mapping[str, Any]) -> int:
    count = document.get("num_hosts")
    return int(count) if is_size(count) else 0


def is_measured(cluster: Mapping[str, Any]) -> bool:
    """Whether cluster information comes from all its hosts, by its `collection_method`, and none is missing."""
    method = str(cluster.get("collection_method", "unknown"))
    return not set(method.split("+")) & NOT_MEASURED and not cluster.get("missing_hosts")


def is_size(value: Any) -> TypeGuard[int | float]:
    """Whether the value is a finite number of at least zero."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0 and (isinstance(value, int) or math.isfinite(value))


def require_all_memory(run: RunData) -> None:
    """Raise `CannotTell` if a client's memory is unknown: with it, the run might no longer pass."""
    measured = {host.name for host, _ in run.each(MemInfo)}
    missing = [host.name for host in run.start if host.name not in measured]
    if missing:
        raise CannotTell(f"the memory of {fold(missing)} was not measured")
