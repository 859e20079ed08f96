"""The tool's `parse_proc_*` functions that return rows: they never raise, and skip lines that do not fit.

Rollbook's collectors do not use them: they parse strictly, and name what could not be parsed under `errors`.
"""

from __future__ import annotations

from typing import NamedTuple

from rollbook.mlpstorage import standalone
from rollbook.mlpstorage.hosts import CgroupInfo, HostDiskInfo, HostNetworkInfo, MountInfo

__all__ = [
    "LoadAverage",
    "parse_proc_cgroups",
    "parse_proc_diskstats",
    "parse_proc_loadavg",
    "parse_proc_mounts",
    "parse_proc_net_dev",
]


class LoadAverage(NamedTuple):
    """The five values of /proc/loadavg."""

    load_1min: float
    load_5min: float
    load_15min: float
    running_processes: int
    total_processes: int


def parse_proc_diskstats(content: str) -> list[HostDiskInfo]:
    """Return a row for each device, partitions included."""
    return [HostDiskInfo(**row) for row in standalone.diskstats(content)]


def parse_proc_net_dev(content: str) -> list[HostNetworkInfo]:
    """Return a row for each interface."""
    return [HostNetworkInfo(**row) for row in standalone.net_dev(content)]


def parse_proc_loadavg(content: str) -> LoadAverage:
    """Return the averages and the task counts; zeros for text that does not fit."""
    return LoadAverage(**standalone.loadavg(content))


def parse_proc_mounts(content: str) -> list[MountInfo]:
    """Return a row for each mount."""
    return [MountInfo(**row) for row in standalone.mounts(content)]


def parse_proc_cgroups(content: str) -> list[CgroupInfo]:
    """Return a row for each subsystem."""
    return [CgroupInfo(**row) for row in standalone.cgroups(content)]
