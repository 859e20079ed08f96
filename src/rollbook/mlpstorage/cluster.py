"""ClusterInformation and ClusterSnapshots with the attributes and constructors of MLPerf Storage's rules.

Hosts that returned no data are in `missing_hosts` and `num_hosts_requested`, and in no sum. One machine under two
names counts once. Of DLIO's per-host arrays the sums are right and the positions are not (with several ranks per host
some hosts count twice and others as zero); the files of the single ranks name the hosts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from rollbook.adapters.results import count, rows
from rollbook.checks.mlperf_values import GIB, is_size, table
from rollbook.errors import RecordError
from rollbook.mlpstorage.hosts import HostCPUInfo, HostInfo, HostMemoryInfo, dict_of
from rollbook.mlpstorage.logs import log
from rollbook.records.cluster import consistency_issues
from rollbook.records.reading import read_target

__all__ = ["ClusterInformation", "ClusterSnapshots"]

SUMS = ("total_memory_bytes", "total_cores", "num_hosts", "min_memory_bytes", "max_memory_bytes")
MAX_HOSTS = 1 << 20
LARGEST = 1 << 40  # of what a host has, in GiB or CPUs: sums of larger numbers have no float


class ClusterInformation:
    """The hosts of a cluster and their sums; attributes and methods as in MLPerf Storage's rules."""

    def __init__(self, host_info_list: Sequence[HostInfo], logger: Any, calculate_aggregated_info: bool = True) -> None:
        self.host_info_list, self.logger = list(host_info_list), logger
        self.total_memory_bytes = self.total_cores = self.min_memory_bytes = self.max_memory_bytes = 0
        self.num_hosts = len(self.host_info_list)
        self.collection_method = "unknown"
        self.collection_timestamp: str | None = None
        self.host_consistency_issues: list[str] = []
        self.num_hosts_requested: int | None = None
        self.missing_hosts: list[dict[str, str]] = []
        if calculate_aggregated_info:
            self.calculate_aggregated_info()

    def calculate_aggregated_info(self) -> None:
        """Compute the sums and extremes from the hosts; calling it again changes nothing."""
        memory = [host.memory.total for host in self.host_info_list if host.memory.total]
        self.num_hosts = len(self.host_info_list)
        self.total_memory_bytes, self.total_cores = sum(memory), sum(host.cores for host in self.host_info_list)
        self.min_memory_bytes, self.max_memory_bytes = min(memory, default=0), max(memory, default=0)

    @classmethod
    def from_mpi_collection(cls, collected_data: Mapping[str, Any], logger: Any) -> ClusterInformation:
        """Return the cluster from a collector's data by host, with how it was collected under `_metadata`."""
        about = table(collected_data.get("_metadata"))
        hosts: list[HostInfo] = []
        missing: dict[str, str] = {}
        seen: dict[Any, str] = {}
        names: set[str] = set()
        for name, data in collected_data.items():
            if name.startswith("_") or not isinstance(data, Mapping):
                continue
            requested = str(data.get("requested_name") or name)
            names |= {requested, name}
            host = HostInfo.from_collected_data(data)
            if not host.memory.total:
                why = data.get("error") or table(data.get("errors")).get("meminfo")
                missing[requested] = str(why or "no memory")
                continue
            if host.identity in seen and host.identity is not None:
                log(logger, "warning", f"{name} is the same machine as {seen[host.identity]}; it counts once")
                continue
            seen[host.identity] = name
            hosts.append(host)
        entries = about.get("requested_hosts")
        for entry in entries if isinstance(entries, list) else []:
            requested = str(entry).partition(":")[0].strip()
            if requested and requested not in names and about.get("collection_method") == "local_fallback":
                missing.setdefault(requested, str(about.get("mpi_error") or "not collected"))
        found = cls(hosts, logger)
        found.missing_hosts = [{"name": name, "status": "failed", "reason": why} for name, why in missing.items()]
        found.num_hosts_requested = len(hosts) + len(missing)
        found.collection_method = str(about.get("collection_method", "mpi"))
        times = [str(host.collection_timestamp) for host in hosts if host.collection_timestamp]
        found.collection_timestamp = about.get("collection_timestamp") or max(times, default=None)
        found.validate_cluster_consistency()
        return found

    @classmethod
    def from_ssh_collection(cls, collected_data: Mapping[str, Any], logger: Any) -> ClusterInformation:
        """Return the cluster from an ssh collector's data; the method is `ssh` unless the data names another."""
        about = {"collection_method": "ssh", **(collected_data.get("_metadata") or {})}
        return cls.from_mpi_collection({**collected_data, "_metadata": about}, logger)

    @classmethod
    def from_dlio_summary_json(
        cls, summary: Mapping[str, Any], logger: Any, directory: Path | None = None
    ) -> ClusterInformation | None:
        """Return the cluster from DLIO's summary, in even shares of the sums.

        None if it has no memory or CPU counts, or more hosts than there can be. DLIO counts logical CPUs. With the
        directory of the run, the files of its ranks name hosts and memory.
        """
        memory, cpus = _numbers(summary.get("host_memory_GB")), _numbers(summary.get("host_cpu_count"))
        if not memory or not cpus:
            return None
        files = sorted(directory.glob("*_output.json")) if directory else []
        # With results on each node's own disk only some of the files are here: then the sums are better.
        hosts = list(_ranks(files)) if len(files) >= (count(summary.get("num_accelerators")) or 0) else []
        if not hosts:
            number_of_hosts = count(summary.get("num_hosts")) or len(memory)
            if number_of_hosts > MAX_HOSTS:
                return None
            for number in range(number_of_hosts):
                each = HostMemoryInfo(total=int(sum(memory) * GIB / number_of_hosts), origin="dlio_summary")
                cores = int(sum(cpus)) // number_of_hosts
                hosts.append(HostInfo(f"host_{number}", each, HostCPUInfo(cores, cores)))
        found = cls(hosts, logger)
        found.collection_method = "dlio_summary"
        found.collection_timestamp = summary.get("start")
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None, logger: Any) -> ClusterInformation | None:
        """Return the cluster from `as_dict`, with its hosts; None for anything without `total_memory_bytes`."""
        if not isinstance(data, Mapping) or "total_memory_bytes" not in data:
            return None
        hosts = [HostInfo.from_written(host) for host in rows(data.get("hosts"))]
        found = cls(hosts, logger, calculate_aggregated_info=False)
        for name in SUMS:
            setattr(found, name, int(data[name]) if is_size(data.get(name)) else 0)
        found.num_hosts = found.num_hosts or len(hosts)
        found.collection_method = str(data.get("collection_method") or "unknown")
        found.collection_timestamp = data.get("collection_timestamp")
        issues = data.get("host_consistency_issues")
        found.host_consistency_issues = [str(one) for one in issues] if isinstance(issues, list) else []
        found.missing_hosts = rows(data.get("missing_hosts"))
        found.num_hosts_requested = data.get("num_hosts_requested")
        return found

    def validate_cluster_consistency(self) -> list[str]:
        """Return a text for each of memory, cores, OS version and kernel in which hosts differ, and store them."""
        several = len(self.host_info_list) > 1
        self.host_consistency_issues = consistency_issues(cast("Any", self.host_info_list)) if several else []
        return self.host_consistency_issues

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `system_info` and of `*_cluster_info.json`."""
        found: dict[str, Any] = {name: getattr(self, name) for name in SUMS}
        found |= {"collection_method": self.collection_method, "collection_timestamp": self.collection_timestamp}
        if self.host_info_list:
            found["hosts"] = [host.to_dict() for host in self.host_info_list]
        for name in ("host_consistency_issues", "num_hosts_requested", "missing_hosts"):
            if getattr(self, name):
                found[name] = getattr(self, name)
        return found

    def to_detailed_dict(self) -> dict[str, Any]:
        """Return the same as `as_dict`, which leaves nothing out."""
        return self.as_dict()

    @property
    def info(self) -> dict[str, Any]:
        """What the tool's JSON encoder asks for."""
        return self.as_dict()


@dataclasses.dataclass
class ClusterSnapshots:
    """The cluster at the start and at the end of a run; an end that was not taken is None."""

    start: ClusterInformation
    end: ClusterInformation | None = None
    collection_method: str = "unknown"

    def as_dict(self) -> dict[str, Any]:
        """Return the content of `cluster_snapshots`."""
        sides = {name: side.as_dict() if side else None for name, side in (("start", self.start), ("end", self.end))}
        return {**sides, "collection_method": self.collection_method}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None, logger: Any) -> ClusterSnapshots | None:
        """Return the snapshots from `as_dict`; None for anything without a valid start."""
        data = table(data)
        start = ClusterInformation.from_dict(data.get("start"), logger)
        if start is None:
            return None
        end = ClusterInformation.from_dict(data.get("end"), logger)
        return cls(start, end, str(data.get("collection_method") or "unknown"))


def _numbers(values: Any) -> list[float]:
    is_valid = isinstance(values, list) and all(is_size(value) and value <= LARGEST for value in values)
    return values if is_valid else []


def _ranks(files: Sequence[Path]) -> Iterator[HostInfo]:
    """Yield one host for each name in the files of the ranks, with the memory that a rank on it saw."""
    seen: set[str] = set()
    for path in files:
        try:
            rank = json.loads(read_target(path))
        except (RecordError, ValueError, RecursionError):
            continue
        if not isinstance(rank, dict):
            continue
        name, memory = rank.get("hostname"), HostMemoryInfo.from_proc_meminfo_dict(dict_of(rank.get("host_meminfo")))
        if isinstance(name, str) and name and name not in seen and memory.total:
            seen.add(name)
            cpus = int(max(_numbers(rank.get("host_cpu_count")), default=0))
            memory = HostMemoryInfo(total=memory.total, origin="dlio_summary")
            yield HostInfo(hostname=name, memory=memory, cpu=HostCPUInfo(cpus, cpus) if cpus else None)
