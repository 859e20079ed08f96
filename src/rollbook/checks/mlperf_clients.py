"""The client hosts of a run and their memory, as MLPerf Storage's rules count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rollbook.checks.mlperf_values import GIB, cluster_of, is_size, table
from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.cluster import HostMemoryInfo
from rollbook.sources.cgroup_limits import CgroupLimits
from rollbook.sources.identity import Identity
from rollbook.sources.meminfo import MemInfo

__all__ = [
    "Clients",
    "Memory",
    "clients",
    "is_measured",
    "memory_of",
    "require_all_memory",
]

# Collection methods that did not measure every host: unknown, the user's arguments, DLIO, the local machine for all.
NOT_MEASURED = {"unknown", "args", "dlio_summary", "local_fallback"}


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


def require_all_memory(run: RunData) -> None:
    """Raise `CannotTell` if a client's memory is unknown: with it, the run might no longer pass."""
    measured = {host.name for host, _ in run.each(MemInfo)}
    missing = [host.name for host in run.start if host.name not in measured]
    if missing:
        raise CannotTell(f"the memory of {fold(missing)} was not measured")


def is_measured(cluster: Mapping[str, Any]) -> bool:
    """Whether cluster information comes from all its hosts, by its `collection_method`, and none is missing."""
    method = str(cluster.get("collection_method", "unknown"))
    return not set(method.split("+")) & NOT_MEASURED and not cluster.get("missing_hosts")


def _hosts_of(document: Mapping[str, Any]) -> int:
    count = document.get("num_hosts")
    return int(count) if is_size(count) else 0
