"""Hosts as MLPerf Storage's mutable dataclasses, with the constructors and dictionaries of its code.

Rows also answer `row["field"]`. Values that are unknown are 0 or "" here, as there; Rollbook's own models keep None.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from rollbook.adapters.results import rows
from rollbook.checks.mlperf_values import is_size
from rollbook.records.cluster import MEMORY

__all__ = [
    "CgroupInfo",
    "HostCPUInfo",
    "HostDiskInfo",
    "HostInfo",
    "HostMemoryInfo",
    "HostNetworkInfo",
    "HostSystemInfo",
    "MountInfo",
    "dict_of",
    "summarize_cpuinfo",
]

KIB = 1024


class _Row(Mapping[str, Any]):
    """A dataclass that can also be read like its dictionary."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return a row from its dictionary; unknown keys are ignored."""
        known = {field.name for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: value for name, value in data.items() if name in known})

    def __getitem__(self, name: str) -> Any:
        return self.to_dict()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())


@dataclasses.dataclass
class HostDiskInfo(_Row):
    """One line of /proc/diskstats."""

    device_name: str
    reads_completed: int = 0
    reads_merged: int = 0
    sectors_read: int = 0
    time_reading_ms: int = 0
    writes_completed: int = 0
    writes_merged: int = 0
    sectors_written: int = 0
    time_writing_ms: int = 0
    ios_in_progress: int = 0
    time_doing_ios_ms: int = 0
    weighted_time_doing_ios_ms: int = 0
    discards_completed: int | None = None
    discards_merged: int | None = None
    sectors_discarded: int | None = None
    time_discarding_ms: int | None = None
    flush_requests_completed: int | None = None
    time_flushing_ms: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that the kernel has."""
        return {name: value for name, value in super().to_dict().items() if value is not None}


@dataclasses.dataclass
class HostNetworkInfo(_Row):
    """One line of /proc/net/dev."""

    interface_name: str
    rx_bytes: int = 0
    rx_packets: int = 0
    rx_errors: int = 0
    rx_dropped: int = 0
    rx_fifo: int = 0
    rx_frame: int = 0
    rx_compressed: int = 0
    rx_multicast: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    tx_errors: int = 0
    tx_dropped: int = 0
    tx_fifo: int = 0
    tx_collisions: int = 0
    tx_carrier: int = 0
    tx_compressed: int = 0


@dataclasses.dataclass
class HostSystemInfo(_Row):
    """Kernel, distribution, uptime and load."""

    hostname: str
    kernel_version: str = ""
    os_release: dict[str, str] = dataclasses.field(default_factory=dict)
    uptime_seconds: float = 0.0
    load_average_1min: float = 0.0
    load_average_5min: float = 0.0
    load_average_15min: float = 0.0
    running_processes: int = 0
    total_processes: int = 0


@dataclasses.dataclass
class MountInfo(_Row):
    """One line of /proc/mounts."""

    device: str
    mount_point: str
    fs_type: str
    options: str
    dump_freq: int = 0
    pass_num: int = 0


@dataclasses.dataclass
class CgroupInfo(_Row):
    """One line of /proc/cgroups."""

    subsys_name: str
    hierarchy: int
    num_cgroups: int
    enabled: bool


@dataclasses.dataclass
class HostMemoryInfo(_Row):
    """Memory in bytes. `limit` is what a control group leaves, `origin` where `total` comes from; both are ours."""

    total: int = 0
    available: int | None = None
    used: int | None = None
    free: int | None = None
    active: int | None = None
    inactive: int | None = None
    buffers: int | None = None
    cached: int | None = None
    shared: int | None = None
    limit: int | None = None
    origin: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the tool's nine fields, and ours where they are set."""
        ours = ("limit", "origin")
        return {name: value for name, value in super().to_dict().items() if name not in ours or value is not None}

    @classmethod
    def from_psutil_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return memory from psutil's fields; those that are missing are 0."""
        return cls.from_dict({name: _whole(data.get(name)) for name in ("total", "used", *MEMORY)})

    @classmethod
    def from_proc_meminfo_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return memory from /proc/meminfo's names, in kB or as `123 kB`; those that are missing are 0."""
        total, sizes = _bytes(data.get("MemTotal")), {field: _bytes(data.get(name)) for field, name in MEMORY.items()}
        used = total - sizes["free"] - sizes["buffers"] - sizes["cached"]
        return cls.from_dict({"total": total, "used": used, **sizes})

    @classmethod
    def from_total_mem_int(cls, total_mem_int: int) -> Self:
        """Return memory of which only the total, in bytes, is known."""
        return cls(total=int(total_mem_int))


def _whole(value: Any) -> int:
    """A count or a size; 0 for anything else."""
    return int(value) if is_size(value) else 0


def _bytes(kib: Any) -> int:
    words = str(kib).split()
    return int(words[0]) * KIB if words and words[0].isdecimal() else 0


@dataclasses.dataclass
class HostCPUInfo(_Row):
    """CPUs of a host."""

    num_cores: int = 0
    num_logical_cores: int = 0
    model: str = ""
    architecture: str = ""
    num_sockets: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return CPUs from their dictionary; what is missing is 0 or empty."""
        return cls(
            num_cores=_whole(data.get("num_cores")),
            num_logical_cores=_whole(data.get("num_logical_cores")),
            model=str(data.get("model") or ""),
            architecture=str(data.get("architecture") or ""),
            num_sockets=_whole(data.get("num_sockets")),
        )


@dataclasses.dataclass
class HostInfo:
    """One host. The fields after `collection_timestamp` are ours; they are written only where they are set."""

    hostname: str
    memory: HostMemoryInfo = dataclasses.field(default_factory=HostMemoryInfo)
    cpu: HostCPUInfo | None = None
    disks: list[HostDiskInfo] | None = None
    network: list[HostNetworkInfo] | None = None
    system: HostSystemInfo | None = None
    collection_timestamp: str | None = None
    mounts: list[MountInfo] | None = None
    cgroups: list[CgroupInfo] | None = None
    chassis_model: str = ""
    networking: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    sysctl: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    environment: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    drives: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    requested_name: str | None = None
    machine_id: str | None = None
    boot_id: str | None = None
    collection_method: str | None = None
    status: str | None = None

    @property
    def cores(self) -> int:
        """Physical cores, else logical CPUs, else 0."""
        return (self.cpu.num_cores or self.cpu.num_logical_cores) if self.cpu else 0

    @property
    def identity(self) -> tuple[str, str, str] | None:
        """What is equal only for one machine under two names; None where it is unknown."""
        known = self.machine_id and self.boot_id
        return (self.hostname, str(self.machine_id), str(self.boot_id)) if known else None

    @classmethod
    def from_dict(cls, hostname: str, data: Mapping[str, Any]) -> Self:
        """Return a host from the older form, which has `memory_info` and `cpu_info`."""
        memory, cpu = data.get("memory_info"), data.get("cpu_info")
        return cls(
            hostname=hostname,
            memory=HostMemoryInfo.from_psutil_dict(memory) if isinstance(memory, Mapping) else HostMemoryInfo(),
            cpu=HostCPUInfo.from_dict(cpu) if isinstance(cpu, Mapping) else None,
        )

    @classmethod
    def from_collected_data(cls, data: Mapping[str, Any]) -> Self:
        """Return a host from a collector's record; without memory it has none, which sums leave out."""
        memory, load, cpus = dict_of(data.get("meminfo")), dict_of(data.get("loadavg")), rows(data.get("cpuinfo"))
        cpu = summarize_cpuinfo(cpus)
        system = {
            "hostname": str(data.get("hostname", "unknown")),
            "kernel_version": str(data.get("version") or ""),
            "os_release": dict_of(data.get("os_release")),
            "uptime_seconds": data.get("uptime_seconds") or data.get("uptime") or 0.0,
            **{f"load_average_{time}": load.get(f"load_{time}", 0.0) for time in ("1min", "5min", "15min")},
            **{name: load.get(name, 0) for name in ("running_processes", "total_processes")},
        }
        written = {
            "memory": HostMemoryInfo.from_proc_meminfo_dict(memory).to_dict() if memory else None,
            "cpu": {**cpu, "num_cores": cpu["num_physical_cores"]} if cpus else None,
            "disks": data.get("diskstats"),
            "network": data.get("netdev"),
            "system": system,
        }
        return cls.from_written({**data, **written})

    @classmethod
    def from_written(cls, data: Mapping[str, Any]) -> Self:
        """Return a host from what `to_dict` wrote, here or in the tool; values of a wrong type are left out."""
        name, memory = str(data.get("hostname", "unknown")), dict_of(data.get("memory"))
        cpu, system = data.get("cpu"), dict_of(data.get("system"))
        host = cls(
            hostname=name,
            memory=HostMemoryInfo.from_dict(
                {key: one for key, one in memory.items() if key == "origin" or is_size(one)}
            ),
            cpu=HostCPUInfo.from_dict(cpu) if isinstance(cpu, Mapping) else None,
            collection_timestamp=data.get("collection_timestamp"),
        )
        if system:
            texts = {"hostname": name, "kernel_version": str(system.get("kernel_version") or "")}
            host.system = HostSystemInfo.from_dict({**system, **texts, "os_release": dict_of(system.get("os_release"))})
        for key, row in ROWS.items():
            setattr(host, key, _rows(row, data.get(key)) or None)
        for key in OURS:
            if data.get(key):
                setattr(host, key, data[key])
        return host

    def to_dict(self) -> dict[str, Any]:
        """Return the host as it is written into `system_info`."""
        found: dict[str, Any] = {
            "hostname": self.hostname,
            "memory": self.memory.to_dict(),
            "collection_timestamp": self.collection_timestamp,
        }
        for name in ("cpu", "system"):
            if getattr(self, name):
                found[name] = getattr(self, name).to_dict()
        for name in ROWS:
            if getattr(self, name):
                found[name] = [row.to_dict() for row in getattr(self, name)]
        return found | {name: getattr(self, name) for name in OURS if getattr(self, name)}


ROWS: dict[str, type[_Row]] = {
    "disks": HostDiskInfo,
    "network": HostNetworkInfo,
    "mounts": MountInfo,
    "cgroups": CgroupInfo,
}
OURS = (
    "chassis_model",
    "networking",
    "sysctl",
    "environment",
    "drives",
    "requested_name",
    "machine_id",
    "boot_id",
    "collection_method",
    "status",
)


def dict_of(value: Any) -> dict[str, Any]:
    """Return a copy of a mapping; empty for anything else."""
    return dict(value) if isinstance(value, Mapping) else {}


def _rows(row: type[_Row], values: Any) -> list[_Row]:
    found = []
    for one in values if isinstance(values, list) else []:
        with contextlib.suppress(TypeError):  # a row without its name
            found.append(row.from_dict(dict_of(one)))
    return found


def summarize_cpuinfo(cpu_list: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return counts, model and architecture from the blocks of /proc/cpuinfo; zeros and empty texts without any."""
    if not cpu_list:
        return {"num_logical_cores": 0, "num_physical_cores": 0, "model": "", "architecture": ""}
    first = cpu_list[0]
    cores = {(str(cpu.get("physical id")), str(cpu["core id"])) for cpu in cpu_list if "core id" in cpu}
    sockets = {str(cpu["physical id"]) for cpu in cpu_list if "physical id" in cpu}
    found: dict[str, Any] = {
        "num_logical_cores": len(cpu_list),
        "num_physical_cores": len(cores) or len(cpu_list),
        "model": str(first.get("model name") or ""),
        "architecture": _architecture(first),
        "num_sockets": len(sockets) or 1,
    }
    if "cpu MHz" in first:
        found["cpu_mhz"] = first["cpu MHz"]
    return found


def _architecture(cpu: Mapping[str, Any]) -> str:
    flags = str(cpu.get("flags") or "").split()
    if "lm" in flags:
        return "x86_64"
    if "tm" in flags:
        return "i686"
    return "aarch64" if "CPU implementer" in cpu or "ARM" in str(cpu.get("model name", "")) else ""
