"""ClusterInformation with the constructors that MLPerf Storage's code uses, over Rollbook's own model.

It is made from what collectors return, from a file, or from DLIO's summary. Of DLIO's per-host arrays the sums are
right and the positions are not (with several ranks per host some hosts count twice and others as zero); the files of
the single ranks name the hosts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import RecordError
from rollbook.records.cluster import ClusterInformation as Core
from rollbook.records.cluster import (
    HostCPUInfo,
    HostInfo,
    HostMemoryInfo,
    HostSystemInfo,
    MissingHost,
    consistency_issues,
)
from rollbook.sources.cgroups import Subsystem
from rollbook.sources.diskstats import Disk
from rollbook.sources.meminfo import MemInfo
from rollbook.sources.mounts import Mount
from rollbook.sources.net_dev import Interface

__all__ = ["ClusterInformation", "ClusterSnapshots", "host_info"]

KIB, GIB = 1024, 1024**3


class ClusterInformation:
    """The hosts of a cluster and what they sum up to; attributes and methods as in MLPerf Storage's rules."""

    def __init__(self, host_info_list: Sequence[HostInfo], logger: Any, calculate_aggregated_info: bool = True) -> None:
        self.host_info_list, self.logger = list(host_info_list), logger
        self.total_memory_bytes = self.total_cores = self.min_memory_bytes = self.max_memory_bytes = 0
        self.num_hosts = len(self.host_info_list)
        self.collection_method = "unknown"
        self.collection_timestamp: str | None = None
        self.host_consistency_issues: list[str] = []
        self.usable_memory_bytes: int | None = None
        self.num_hosts_requested: int | None = None
        self.missing_hosts: list[MissingHost] = []
        if calculate_aggregated_info:
            memory = [host.memory.total for host in self.host_info_list]
            self.total_memory_bytes = sum(memory)
            self.min_memory_bytes, self.max_memory_bytes = min(memory, default=0), max(memory, default=0)
            self.total_cores = sum(host.cores for host in self.host_info_list)
            self.host_consistency_issues = self.validate_cluster_consistency()

    @classmethod
    def from_mpi_collection(cls, collected_data: Mapping[str, Any], logger: Any) -> ClusterInformation:
        """From a collector's data by host. Hosts that gave an error count in nothing."""
        about = collected_data.get("_metadata") or {}
        hosts = [
            host_info(data)
            for name, data in collected_data.items()
            if not name.startswith("_") and isinstance(data, Mapping) and data.get("meminfo")
        ]
        found = cls(hosts, logger)
        found.collection_method = str(about.get("collection_method", "mpi"))
        times = [host.collection_timestamp for host in hosts if host.collection_timestamp]
        found.collection_timestamp = about.get("collection_timestamp") or max(times, default=None)
        return found

    @classmethod
    def from_dlio_summary_json(
        cls, summary: Mapping[str, Any], logger: Any, directory: Path | None = None
    ) -> ClusterInformation:
        """From DLIO's summary: sums over all hosts, dealt out evenly. DLIO counts logical CPUs.

        With the directory of the run, the files of its ranks tell each host's name and memory.
        """
        files = sorted(directory.glob("*_output.json")) if directory else []
        # With results on each node's own disk only some of the files are here: then the sums tell more.
        hosts = list(_ranks(files)) if len(files) >= int(summary.get("num_accelerators") or 0) else []
        if not hosts:
            memory, cpus = sum(summary["host_memory_GB"]), sum(summary.get("host_cpu_count") or [])
            count = int(summary.get("num_hosts") or len(summary["host_memory_GB"]))
            each = HostMemoryInfo(total=int(memory * GIB / count), origin="dlio_summary")
            cpu = HostCPUInfo(cpus // count)
            hosts = [HostInfo(hostname=f"host_{number}", memory=each, cpu=cpu) for number in range(count)]
        found = cls(hosts, logger)
        found.collection_method = "dlio_summary"
        found.collection_timestamp = summary.get("start")
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], logger: Any) -> ClusterInformation | None:
        """From `as_dict`, also as an older tool wrote it; None where it is no cluster."""
        if "total_memory_bytes" not in data:
            return None
        hosts = [host_info(host) for host in data.get("hosts") or []]
        found = cls(hosts, logger, calculate_aggregated_info=False)
        for name in ("total_memory_bytes", "total_cores", "min_memory_bytes", "max_memory_bytes"):
            setattr(found, name, int(data.get(name) or 0))
        found.num_hosts = int(data.get("num_hosts") or len(hosts))
        found.collection_method = str(data.get("collection_method") or "unknown")
        found.collection_timestamp = data.get("collection_timestamp")
        found.host_consistency_issues = list(data.get("host_consistency_issues") or [])
        found.usable_memory_bytes, found.num_hosts_requested = (
            data.get(name) for name in ("usable_memory_bytes", "num_hosts_requested")
        )
        found.missing_hosts = msgspec.convert(data.get("missing_hosts") or [], list[MissingHost])
        return found

    def validate_cluster_consistency(self) -> list[str]:
        """A message for each of memory, cores, OS version and kernel in which hosts differ."""
        return consistency_issues(self.host_info_list)

    def as_dict(self) -> dict[str, Any]:
        """The content of `system_info` and of `*_cluster_info.json`."""
        core = Core(
            self.total_memory_bytes,
            self.total_cores,
            self.num_hosts,
            self.min_memory_bytes,
            self.max_memory_bytes,
            self.collection_method,
            self.collection_timestamp,
            self.host_info_list,
            self.host_consistency_issues,
            self.usable_memory_bytes,
            self.num_hosts_requested,
            self.missing_hosts,
        )
        found: dict[str, Any] = msgspec.to_builtins(core)
        return found


@dataclasses.dataclass
class ClusterSnapshots:
    """The cluster at the start and at the end of a run; a side that was not taken is None."""

    start: ClusterInformation | None = None
    end: ClusterInformation | None = None
    collection_method: str = "unknown"

    def as_dict(self) -> dict[str, Any]:
        """The content of `cluster_snapshots`."""
        sides = {name: side.as_dict() if side else None for name, side in (("start", self.start), ("end", self.end))}
        return {**sides, "collection_method": self.collection_method}


def host_info(data: Mapping[str, Any]) -> HostInfo:
    """A host from a collector's raw record, or from what `as_dict` wrote; `RecordError` where it gave no memory."""
    if "memory" in data:
        return msgspec.convert(_with_numbers(data), HostInfo, strict=False)
    info = HostInfo(hostname=str(data["hostname"]), memory=_memory(data))
    info.collection_timestamp = data.get("collection_timestamp")
    info.cpu = _cpu(data.get("cpuinfo") or [])
    info.disks = [_row(Disk, {"device_number": "", **row}) for row in data.get("diskstats") or []]
    info.network = [_row(Interface, row) for row in data.get("netdev") or []]
    info.mounts = [_row(Mount, row) for row in data.get("mounts") or []]
    info.cgroups = [_row(Subsystem, row) for row in data.get("cgroups") or []]
    load = data.get("loadavg") or {}
    info.system = HostSystemInfo(
        hostname=info.hostname,
        kernel_version=str(data.get("version") or ""),
        os_release=dict(data.get("os_release") or {}),
        uptime_seconds=data.get("uptime_seconds"),
        load_average_1min=load.get("load_1min"),
        load_average_5min=load.get("load_5min"),
        load_average_15min=load.get("load_15min"),
        running_processes=load.get("running_processes"),
        total_processes=load.get("total_processes"),
    )
    info.chassis_model = data.get("chassis_model") or None
    info.requested_name, info.machine_id, info.boot_id = (
        data.get(name) for name in ("requested_name", "machine_id", "boot_id")
    )
    return info


def _row(kind: type[Any], row: Mapping[str, Any]) -> Any:
    return msgspec.convert(dict(row), kind, strict=False)


def _with_numbers(data: Mapping[str, Any]) -> dict[str, Any]:
    """Disks of older files have no device number."""
    return {**data, "disks": [{"device_number": "", **disk} for disk in data.get("disks") or []]}


def _memory(data: Mapping[str, Any]) -> HostMemoryInfo:
    kib = {name: int(value) for name, value in (data.get("meminfo") or {}).items()}
    if "MemTotal" not in kib:
        raise RecordError(f"{data.get('hostname')} gave no memory: {data.get('error', 'meminfo was not read')}")
    return HostMemoryInfo.of(MemInfo(kib["MemTotal"], kib, {}), None)


def _cpu(cpus: Sequence[Mapping[str, Any]]) -> HostCPUInfo | None:
    """Counted by sockets and cores where CPUs say to which they belong."""
    if not cpus:
        return None
    sockets = {cpu["physical id"] for cpu in cpus if "physical id" in cpu}
    cores = {(cpu.get("physical id"), cpu["core id"]) for cpu in cpus if "core id" in cpu}
    model = str(cpus[0].get("model name") or "")
    return HostCPUInfo(len(cpus), len(cores) or None, len(sockets) or None, model)


def _ranks(files: Sequence[Path]) -> Iterator[HostInfo]:
    """One host for each name in the files of the ranks, with the memory that a rank on it saw."""
    seen: set[str] = set()
    for path in files:
        try:
            rank = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
        if not isinstance(rank, dict):
            continue
        name, memory = rank.get("hostname"), rank.get("host_meminfo")
        size = str(memory.get("MemTotal", "")).split() if isinstance(memory, dict) else []
        if name and name not in seen and size and size[0].isdecimal():
            seen.add(name)
            counts = rank.get("host_cpu_count")
            cpus = max(counts) if isinstance(counts, list) and counts else 0
            total = HostMemoryInfo(total=int(size[0]) * KIB, origin="dlio_summary")
            yield HostInfo(hostname=name, memory=total, cpu=HostCPUInfo(cpus) if cpus else None)
