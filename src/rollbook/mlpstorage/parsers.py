"""The `parse_proc_*` functions by the names MLPerf Storage's code knows them by, over Rollbook's parsers.

They take the text of a file and give plain dicts, lists and texts. Text that is none of the kernel's raises
`rollbook.errors.ParseError`, which is no silent zero.
"""

from __future__ import annotations

from typing import Any

from rollbook.mlpstorage.shapes import plain_rows, sample_value
from rollbook.sources import cgroups, diskstats, loadavg, meminfo, mounts, net_dev, os_release, uptime, version, vmstat
from rollbook.sources.text import lines_of

__all__ = [
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


def parse_proc_meminfo(content: str) -> dict[str, int]:
    """Every line's number by name: kB, and for `HugePages_*` pages."""
    found: dict[str, int] = sample_value(meminfo.parse(content))
    return found


def parse_proc_cpuinfo(content: str) -> list[dict[str, Any]]:
    """One dict per logical CPU with every line of it; whole and decimal numbers as such."""
    blocks: list[dict[str, Any]] = []
    for line in lines_of(content):
        name, _, value = (part.strip() for part in line.partition(":"))
        if name == "processor" or not blocks:
            blocks.append({})
        blocks[-1][name] = _number(value)
    return blocks


def _number(value: str) -> int | float | str:
    for kind in (int, float):
        if value.isascii() and value.replace(".", "", 1).isdigit():
            try:
                return kind(value)
            except ValueError:
                continue
    return value


def parse_proc_diskstats(content: str) -> list[dict[str, Any]]:
    """One dict per device; the columns that the kernel does not have are left out."""
    return plain_rows(diskstats.parse(content))


def parse_proc_net_dev(content: str) -> list[dict[str, Any]]:
    """One dict per interface."""
    return plain_rows(net_dev.parse(content))


def parse_proc_version(content: str) -> str:
    """The whole banner."""
    return version.parse(content).banner


def parse_proc_loadavg(content: str) -> dict[str, float]:
    """The averages and the task counts by name."""
    found: dict[str, float] = sample_value(loadavg.parse(content))
    return found


def parse_proc_uptime(content: str) -> float:
    """Seconds since boot."""
    return uptime.parse(content).uptime_seconds


def parse_proc_vmstat(content: str) -> dict[str, int]:
    """Every line's number by name."""
    found: dict[str, int] = sample_value(vmstat.parse(content))
    return found


def parse_proc_mounts(content: str) -> list[dict[str, Any]]:
    """One dict per mount."""
    return plain_rows(mounts.parse(content))


def parse_proc_cgroups(content: str) -> list[dict[str, Any]]:
    """One dict per subsystem."""
    return plain_rows(cgroups.parse(content))


def parse_os_release(content: str) -> dict[str, str]:
    """Every assignment by name."""
    return os_release.parse(content).fields
