"""The tool's `parse_proc_*` functions: they never raise, and skip lines that do not fit.

Rollbook's collectors do not use them: they parse strictly, and name what could not be parsed under `errors`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rollbook.mlpstorage import standalone
from rollbook.mlpstorage.hosts import CgroupInfo, HostDiskInfo, HostNetworkInfo, MountInfo

__all__ = [
    "LoadAverage",
    "parse_os_release",
    "parse_proc_cgroups",
    "parse_proc_cpuinfo",
    "parse_proc_diskstats",
    "parse_proc_loadavg",
    "parse_proc_meminfo",
    "parse_proc_mounts",
    "parse_proc_net_dev",
    "parse_proc_uptime",
    "parse_proc_version",
    "parse_proc_vmstat",
]


class LoadAverage(NamedTuple):
    """The five values of /proc/loadavg."""

    load_1min: float
    load_5min: float
    load_15min: float
    running_processes: int
    total_processes: int


def parse_proc_meminfo(content: str) -> dict[str, int]:
    """Return every line's number by name: kB, and pages for `HugePages_*`."""
    return standalone.meminfo(content)


def parse_proc_cpuinfo(content: str) -> list[dict[str, Any]]:
    """Return a dict for each logical CPU; numbers as such."""
    return standalone.cpuinfo(content)


def parse_proc_diskstats(content: str) -> list[HostDiskInfo]:
    """Return a row for each device, partitions included."""
    return [HostDiskInfo(**row) for row in standalone.diskstats(content)]


def parse_proc_net_dev(content: str) -> list[HostNetworkInfo]:
    """Return a row for each interface."""
    return [HostNetworkInfo(**row) for row in standalone.net_dev(content)]


def parse_proc_version(content: str) -> str:
    """Return the kernel's banner."""
    return standalone.version(content)


def parse_proc_loadavg(content: str) -> LoadAverage:
    """Return the averages and the task counts; zeros for text that does not fit."""
    return LoadAverage(**standalone.loadavg(content))


def parse_proc_uptime(content: str) -> float:
    """Return seconds since boot; 0.0 for text that does not fit."""
    return standalone.uptime(content)


def parse_proc_vmstat(content: str) -> dict[str, int]:
    """Return every line's number by name."""
    return standalone.vmstat(content)


def parse_proc_mounts(content: str) -> list[MountInfo]:
    """Return a row for each mount."""
    return [MountInfo(**row) for row in standalone.mounts(content)]


def parse_proc_cgroups(content: str) -> list[CgroupInfo]:
    """Return a row for each subsystem."""
    return [CgroupInfo(**row) for row in standalone.cgroups(content)]


def parse_os_release(content: str) -> dict[str, str]:
    """Return every assignment by name."""
    return standalone.os_release(content)
