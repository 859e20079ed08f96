"""The host and cluster models that MLPerf Storage's tools read, with exactly their JSON keys, and more.

They are built from facts, so every transport gives the same fields. Keys that those tools do not know are additions;
none changes the meaning of theirs. What is written reads back to equal values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rollbook.records.hosts import HostResult
from rollbook.sources.cgroup_limits import CgroupLimits
from rollbook.sources.cgroups import Subsystem
from rollbook.sources.cpu_topology import Topology
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.sources.diskstats import Disk
from rollbook.sources.dmi import Machine
from rollbook.sources.identity import Identity
from rollbook.sources.loadavg import LoadAvg
from rollbook.sources.meminfo import MemInfo
from rollbook.sources.mounts import Mount
from rollbook.sources.net_dev import Interface
from rollbook.sources.os_release import OsRelease
from rollbook.sources.uptime import Uptime
from rollbook.sources.version import Version

__all__ = [
    "MEMORY",
    "ClusterInformation",
    "HostCPUInfo",
    "HostInfo",
    "HostMemoryInfo",
    "HostSystemInfo",
    "consistency_issues",
]

KIB = 1024
# Fields of a host's memory, and their names in /proc/meminfo.
MEMORY = {
    "available": "MemAvailable",
    "free": "MemFree",
    "active": "Active",
    "inactive": "Inactive",
    "buffers": "Buffers",
    "cached": "Cached",
    "shared": "Shmem",
}


class HostMemoryInfo(msgspec.Struct):
    """Memory in bytes. `total` is what the kernel manages; `limit` is the cgroup's limit, None without one.

    `origin` is where `total` comes from: `measured`, or `declared` by the user if it could not be measured.
    """

    total: int
    available: int | None = None
    used: int | None = None
    free: int | None = None
    active: int | None = None
    inactive: int | None = None
    buffers: int | None = None
    cached: int | None = None
    shared: int | None = None
    limit: int | None = None
    origin: str = "unknown"

    @classmethod
    def of(cls, memory: MemInfo, limits: CgroupLimits | None) -> HostMemoryInfo:
        """From /proc/meminfo; a cgroup limit above the total is ignored."""
        size = {name: kib * KIB for name, kib in memory.kib.items()}
        sizes = {field: size.get(name) for field, name in MEMORY.items()}
        parts = [sizes[field] for field in ("free", "buffers", "cached")]
        used = size["MemTotal"] - sum(p for p in parts if p is not None) if None not in parts else None
        limit = limits.memory_bytes if limits else None
        return cls(
            total=size["MemTotal"],
            used=used,
            limit=limit if limit is not None and limit < size["MemTotal"] else None,
            origin="measured",
            **sizes,
        )

    @property
    def usable(self) -> int:
        """The memory a job can use: the limit if there is one, otherwise the total."""
        return self.total if self.limit is None else self.limit


class HostCPUInfo(msgspec.Struct):
    """CPUs that are online: physical cores, logical CPUs, sockets; None if the host does not report it."""

    num_logical_cores: int
    num_cores: int | None = None
    num_sockets: int | None = None
    model: str = ""
    architecture: str = ""

    @classmethod
    def of(cls, cpu: CpuInfo, topology: Topology | None) -> HostCPUInfo:
        """From /proc/cpuinfo, completed from sysfs if the architecture's cpuinfo has no topology.

        In a container, cpuinfo may show the container's CPUs while sysfs shows all CPUs of the machine.
        """
        cores, sockets = cpu.physical_cores, cpu.sockets
        if topology is not None and (topology.cores or 0) <= cpu.logical_cpus:
            cores, sockets = topology.cores or cores, topology.sockets or sockets
        return cls(cpu.logical_cpus, cores, sockets, cpu.model or "", cpu.architecture or "")


class HostSystemInfo(msgspec.Struct, omit_defaults=True):
    """The system: kernel banner, distribution, uptime, load."""

    hostname: str
    kernel_version: str = ""
    os_release: dict[str, str] = {}
    uptime_seconds: float | None = None
    load_average_1min: float | None = None
    load_average_5min: float | None = None
    load_average_15min: float | None = None
    running_processes: int | None = None
    total_processes: int | None = None

    @classmethod
    def of(cls, host: HostResult) -> HostSystemInfo:
        """From the facts of the host; missing ones stay unset."""
        system = cls(host.hostname or host.name)
        if version := host.fact(Version):
            system.kernel_version = version.banner
        if release := host.fact(OsRelease):
            system.os_release = release.fields
        if uptime := host.fact(Uptime):
            system.uptime_seconds = uptime.uptime_seconds
        if load := host.fact(LoadAvg):
            system.load_average_1min, system.load_average_5min = load.load_1min, load.load_5min
            system.load_average_15min = load.load_15min
            system.running_processes, system.total_processes = load.running_processes, load.total_processes
        return system


class HostInfo(msgspec.Struct, omit_defaults=True):
    """One host that returned data. `requested_name` is the user's name for it, `hostname` its own."""

    hostname: str
    memory: HostMemoryInfo
    collection_timestamp: str | None = None
    cpu: HostCPUInfo | None = None
    disks: list[Disk] = []
    network: list[Interface] = []
    system: HostSystemInfo | None = None
    mounts: list[Mount] = []
    cgroups: list[Subsystem] = []
    chassis_model: str | None = None
    requested_name: str | None = None
    machine_id: str | None = None
    boot_id: str | None = None
    collection_method: str = "unknown"
    status: str = "complete"

    @property
    def cores(self) -> int:
        """Physical cores, or logical CPUs if the host does not report cores; 0 if it reports neither."""
        if self.cpu is None:
            return 0
        return self.cpu.num_logical_cores if self.cpu.num_cores is None else self.cpu.num_cores

    @classmethod
    def of(cls, host: HostResult) -> HostInfo | None:
        """From a host's result; None if not even the memory is known."""
        memory, cpu = host.fact(MemInfo), host.fact(CpuInfo)
        if memory is None:
            return None
        machine, identity = host.fact(Machine), host.fact(Identity)
        return cls(
            hostname=host.hostname or host.name,
            memory=HostMemoryInfo.of(memory, host.fact(CgroupLimits)),
            collection_timestamp=host.collected_at,
            cpu=HostCPUInfo.of(cpu, host.fact(Topology)) if cpu else None,
            disks=host.rows(Disk),
            network=host.rows(Interface),
            system=HostSystemInfo.of(host),
            mounts=host.rows(Mount),
            cgroups=host.rows(Subsystem),
            chassis_model=machine.product_name if machine else None,
            requested_name=host.name,
            machine_id=identity.machine_id if identity else host.machine_id,
            boot_id=identity.boot_id if identity else host.boot_id,
            collection_method=host.method or "unknown",
            status=host.status,
        )

    @classmethod
    def from_arguments(cls, host: HostResult, memory: int) -> HostInfo:
        """A host that returned no data, as declared by the user's arguments."""
        return cls(
            hostname=host.name,
            memory=HostMemoryInfo(memory, origin="declared"),
            requested_name=host.name,
            collection_method="args",
            status=host.status,
        )


class MissingHost(msgspec.Struct, frozen=True):
    """A requested host that returned no data; it counts in sums and minimums only as the user declared it."""

    name: str
    status: str
    reason: str


class ClusterInformation(msgspec.Struct, omit_defaults=True):
    """Sums and extremes over the hosts that returned data, and the names of those that did not."""

    total_memory_bytes: int
    total_cores: int | None
    num_hosts: int
    min_memory_bytes: int
    max_memory_bytes: int
    collection_method: str
    collection_timestamp: str | None
    hosts: list[HostInfo] = []
    host_consistency_issues: list[str] = []
    usable_memory_bytes: int | None = None
    num_hosts_requested: int | None = None
    missing_hosts: list[MissingHost] = []

    @classmethod
    def of(cls, results: Sequence[HostResult], declared: int | None = None) -> ClusterInformation:
        """From host results. The method names every transport that returned data.

        `declared` is the memory in bytes that the user declared per host; hosts without data get it (method `args`).
        """
        hosts = [info for result in results if (info := HostInfo.of(result)) is not None]
        there = {info.requested_name for info in hosts}
        if declared is not None:
            hosts += [HostInfo.from_arguments(result, declared) for result in results if result.name not in there]
        memory = [host.memory.total for host in hosts]
        return cls(
            total_memory_bytes=sum(memory),
            total_cores=sum(host.cores for host in hosts) if any(host.cpu for host in hosts) or not hosts else None,
            num_hosts=len(hosts),
            min_memory_bytes=min(memory, default=0),
            max_memory_bytes=max(memory, default=0),
            collection_method="+".join(sorted({host.collection_method for host in hosts})) or "unknown",
            collection_timestamp=max((host.collection_timestamp or "" for host in hosts), default="") or None,
            hosts=hosts,
            host_consistency_issues=consistency_issues(hosts),
            usable_memory_bytes=sum(host.memory.usable for host in hosts),
            num_hosts_requested=len(results),
            missing_hosts=[MissingHost(r.name, r.status, r.reason) for r in results if r.name not in there],
        )


def _release(banner: str) -> str:
    """The third word of a kernel's banner; other tools write the release alone."""
    return (banner.split()[2:3] or [banner])[0]


def consistency_issues(hosts: Sequence[HostInfo]) -> list[str]:
    """What MLPerf Storage's own check looks for: memory spread over 10 %, cores, OS version, kernel release."""
    memory = [host.memory.total for host in hosts if host.memory.total]
    issues = []
    if memory and max(memory) - min(memory) > 0.1 * min(memory):
        low, high = min(memory) / KIB**3, max(memory) / KIB**3
        issues.append(f"Memory variance across hosts: {low:.1f} GiB to {high:.1f} GiB, more than 10%")
    systems = [host.system for host in hosts if host.system]
    differing: dict[str, set[Any]] = {
        "CPU core count": {host.cores for host in hosts if host.cpu},
        "OS version": {system.os_release.get("VERSION_ID", "") for system in systems if system.os_release},
        "Kernel version": {_release(system.kernel_version) for system in systems if system.kernel_version},
    }
    for what, values in differing.items():
        if len(values) > 1:
            issues.append(f"{what} varies across hosts: {', '.join(map(str, sorted(values)))}")
    return issues
