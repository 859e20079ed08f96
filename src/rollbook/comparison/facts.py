"""Facts that changed between two sides, ranked by how likely they explain a difference.

score = prior × separates × touches × agrees × reach. It orders facts, it proves nothing: several facts that changed
together cannot be told apart.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rollbook.checks.changes import changes
from rollbook.checks.views import status_of, views
from rollbook.comparison.model import ChangedFact, FactChanges, Row
from rollbook.comparison.statistics import CALLED
from rollbook.records.findings import Change
from rollbook.records.hosts import HostResult
from rollbook.records.record import Record

__all__ = ["changed_facts"]

SUBSYSTEMS: Mapping[str, tuple[float, str]] = {
    **dict.fromkeys(
        ("cpuinfo", "cpu_topology", "cpufreq", "cpuidle", "turbo", "microcode", "mitigations"), (1.0, "cpu")
    ),
    **dict.fromkeys(("thermal_throttle", "clocksource", "tuned"), (0.8, "cpu")),
    **dict.fromkeys(("meminfo", "numa", "dimms", "edac"), (1.0, "mem")),
    **dict.fromkeys(("hugepages", "thp", "ksm", "swaps"), (0.8, "mem")),
    **dict.fromkeys(("block", "nvme", "mdstat", "local_mounts", "space"), (1.0, "disk")),
    **dict.fromkeys(("shared_mounts", "nfs"), (1.0, "nfs")),
    "lustre": (1.0, "lustre"),
    **dict.fromkeys(("net_class", "bonding", "addresses"), (1.0, "net")),
    "infiniband": (1.0, "rdma"),
    **dict.fromkeys(("nvidia_smi", "nvidia_proc", "nvidia_driver", "amdgpu"), (1.0, "gpu")),
    **dict.fromkeys(("limits", "cgroup_limits", "pci"), (1.0, "")),
    **dict.fromkeys(("identity", "os_release", "sysctl", "cmdline", "iommu", "cloud", "dmi"), (0.8, "")),
    **dict.fromkeys(("modules", "services", "security", "environment", "time_sync"), (0.5, "")),
}
"""By view: how likely its facts matter at all, and the first part of the names of metrics that they would move."""
OTHER_PRIOR = 0.3
SHORT = 60  # characters of a command line up to which it is shown completely
IDENTITIES = ("unique", "delta")  # identities and error counters: they explain nothing
MORE_IS_BETTER = ("cores", "threads", "cpus", "count", "kib", "speed", "width", "mhz", "khz", "bytes", "rate", "mtu")
"""Parts of names of numeric fields of which more is faster."""
SUSPECTS: Mapping[str, tuple[str, ...]] = {
    "kernel": ("identity.kernel_release",),
    "CPU": ("cpuinfo",),
    "CPU governor": ("cpufreq",),
    "memory": ("meminfo",),
    "block devices and schedulers": ("block",),
    "mounts": ("shared_mounts", "local_mounts"),
    "network links": ("net_class",),
}
"""Usual causes, each with the views or single fields that would show it."""


class _Seen(NamedTuple):
    """What the values show: subsystems that moved or not, the direction of the results, the slowest hosts."""

    moved: set[str]
    still: set[str]
    direction: int
    slow: set[str]


def changed_facts(
    side: str, before: Sequence[Record], after: Sequence[Record], rows: Sequence[Row], at: int
) -> FactChanges:
    """What differs between two sides in command, hosts and facts; `at` is the place of the side's changes in rows.

    The first runs of both sides are compared, and the first with the last of each side to see what varies by itself.
    """
    slow = {
        host
        for row in rows
        if row.kind == "host" and row.changes[at].verdict in CALLED
        for host in row.hosts[at + 1 : at + 2]
        if host
    }
    seen = _Seen(*_movement(rows, at), _result_direction(rows, at), slow)
    vary = {
        key
        for group in (before, after)
        if len(group) > 1
        for key, _, change in _host_changes(group[0], group[-1])
        if change.mode not in IDENTITIES
    }
    found: dict[tuple[str, str, str, str], ChangedFact] = {}
    ignored = 0
    for (field, row), host, change in _host_changes(before[0], after[0]):
        if change.mode in IDENTITIES:
            ignored += 1
            continue
        key = (field, row, repr(change.before), repr(change.after))
        one = found.setdefault(
            key,
            ChangedFact(field=field, row=row, before=change.before, after=change.after, unit=change.unit, score=0.0),
        )
        one.hosts.append(host)
        one.varies = (field, row) in vary
    hosts = max(1, len(_names(before[0]) & _names(after[0])))
    for one in found.values():
        _score(one, hosts, seen)
    facts = [*_run_changes(before, after), *found.values()]
    facts.sort(key=lambda one: (-one.score, one.field, one.row))
    changed = {field for field, _ in [*vary, *((one.field, one.row) for one in found.values())]}
    return FactChanges(side=side, facts=facts, ignored=ignored, unchanged=_unchanged(before[0], after[0], changed))


def _unchanged(before: Record, after: Record, changed: Collection[str]) -> list[str]:
    """The usual causes that were read on every host of both runs, and of which no field changed."""
    hosts = [*before.hosts.start, *after.hosts.start]
    if 2 * len(_pairs(before, after)) < len(hosts):
        return []
    sources = {view.name: view.source for view in views()}

    def is_unchanged(part: str) -> bool:
        read = all(status_of(host, sources[part.partition(".")[0]]) == "ok" for host in hosts)
        return read and not any(field == part or field.startswith(f"{part}.") for field in changed)

    return [name for name, parts in SUSPECTS.items() if all(map(is_unchanged, parts))]


def _movement(rows: Sequence[Row], at: int) -> tuple[set[str], set[str]]:
    """The subsystems of which a metric moved, and those of which none did."""
    moved, seen = set(), set()
    for row in rows:
        if row.kind in ("metric", "host") and row.values[at + 1]:
            part = row.name.partition("_")[0]
            seen.add(part)
            if row.changes[at].verdict in CALLED:
                moved.add(part)
    return moved, seen - moved


def _result_direction(rows: Sequence[Row], at: int) -> int:
    """1 if the results became better, -1 if worse, 0 if neither or both."""
    verdicts = {row.changes[at].verdict for row in rows if row.kind == "result"}
    return ("better" in verdicts) - ("worse" in verdicts)


def _score(one: ChangedFact, hosts: int, seen: _Seen) -> None:
    source = one.field.partition(".")[0]
    prior, subsystem = SUBSYSTEMS.get(source, (OTHER_PRIOR, ""))
    score, reasons = prior, []
    if one.varies:
        score *= 0.25
        reasons.append("also differs between repeats of one side")
    if subsystem in seen.moved:
        score *= 2
        reasons.append(f"{subsystem} metrics moved")
    elif subsystem in seen.still:
        score *= 0.5
        reasons.append(f"no {subsystem} metric moved")
    if seen.direction and (grew := _grew(one)):
        score *= 1.5 if grew == seen.direction else 0.3
        reasons.append("the direction fits" if grew == seen.direction else "the direction does not fit")
    score *= len(one.hosts) / hosts if hosts > 1 else 1
    if seen.slow and hosts > 1 and set(one.hosts) <= seen.slow:
        score *= (
            2 * hosts / len(one.hosts)
        )  # the slow host is the one that changed: its share does not count against it
        reasons.append("on the slowest host")
    one.score, one.reasons = round(score, 3), reasons


def _grew(one: ChangedFact) -> int:
    """1 if a number of which more is faster grew, -1 if it fell, 0 for anything else."""
    numbers = isinstance(one.before, int | float) and isinstance(one.after, int | float)
    field = one.field.rpartition(".")[2]
    if not numbers or not any(part in field for part in MORE_IS_BETTER):
        return 0
    return 1 if one.after > one.before else -1


def _host_changes(before: Record, after: Record) -> Iterator[tuple[tuple[str, str], str, Change]]:
    """The changed fields of every pair of hosts."""
    for left, right in _pairs(before, after):
        for change in changes(left, right, one_host=left.name == right.name):
            yield (change.field, change.row), right.name, change


def _pairs(before: Record, after: Record) -> list[tuple[HostResult, HostResult]]:
    """The hosts that gave data in both runs; of two single hosts with different names, these."""
    lefts, rights = ({host.name: host for host in record.hosts.start if host.gave_data} for record in (before, after))
    if len(lefts) == len(rights) == 1:
        return [(*lefts.values(), *rights.values())]  # type: ignore[list-item] # one of each
    return [(lefts[name], rights[name]) for name in lefts if name in rights]


def _names(record: Record) -> set[str]:
    return {host.name for host in record.hosts.start}


def _run_changes(before: Sequence[Record], after: Sequence[Record]) -> Iterator[ChangedFact]:
    """What differs in how the runs were started: command, parameters of the benchmark, hosts, interval."""
    for field, prior in (("command", 3.0), ("hosts", 1.5), ("interval_seconds", 0.3)):
        one, two = _run_fact(before[0], field), _run_fact(after[0], field)
        if one == two:
            continue
        vary = any(_run_fact(group[0], field) != _run_fact(group[-1], field) for group in (before, after))
        if field == "command":
            one, two = _differing_words(one, two)
        reasons = ["the runs were started differently"] if field == "command" else []
        score = prior * (0.25 if vary else 1.0)
        yield ChangedFact(field=field, before=one, after=two, score=score, reasons=reasons, varies=vary)


def _run_fact(record: Record, field: str) -> Any:
    if field == "command":
        return str(record.metadata.get("executed_command") or "")
    if field == "hosts":
        return sorted(_names(record))
    return record.hosts.interval_seconds


def _differing_words(before: str, after: str) -> tuple[str, str]:
    """Of two long command lines, the words that are in one of them only; both lines if only the order differs."""
    if max(len(before), len(after)) <= SHORT:
        return before, after
    try:
        ones, twos = shlex.split(before), shlex.split(after)
    except ValueError:
        return before, after
    left = [word for word in ones if word not in twos]
    right = [word for word in twos if word not in ones]
    return (shlex.join(left), shlex.join(right)) if left or right else (before, after)
