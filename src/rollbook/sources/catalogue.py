"""The built-in sources, by name. The order is the order of reading: cheap and telling first."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any

from rollbook.errors import UsageError
from rollbook.sources.base import Source

__all__ = ["GROUP", "NAMES", "known", "load", "plugged", "source"]

GROUP = "rollbook.sources"
"""The entry point group of sources from other packages."""

NAMES = (
    "identity",
    "uptime",
    "version",
    "os_release",
    "cmdline",
    "loadavg",
    "meminfo",
    "stat",
    "stat_totals",
    "vmstat",
    "diskstats",
    "net_dev",
    "pressure",
    "cgroup_stat",
    "cpuinfo",
    "cgroup_limits",
    "cgroups",
    "limits",
    "environment",
    "addresses",
    "mounts",
    "mountinfo",
    "swaps",
    "clocksource",
    "hugepages",
    "ksm",
    "security",
    "sysctl",
    "modules",
    "nfs",
    "nfs_ops",
    "lustre",
    "lustre_stats",
    "net_snmp",
    "softnet",
    "softirqs",
    "thp",
    "dmi",
    "cloud",
    "cpu_topology",
    "numa",
    "cpufreq",
    "turbo",
    "cpuidle",
    "microcode",
    "mitigations",
    "tuned",
    "net_class",
    "bonding",
    "infiniband",
    "infiniband_counters",
    "block",
    "nvme",
    "mdstat",
    "amdgpu",
    "pci",
    "iommu",
    "nvidia_driver",
    "nvidia_proc",
    "dimms",
    "edac_dimms",
    "edac",
    "aer",
    "thermal_throttle",
    "rapl",
    "thermal",
    "nvme_thermal",
    "services",
    "nvme_smart",
    "nvidia_smi",
    "gpu",
    "space",
    "time_sync",
)


@functools.cache
def source(name: str) -> Source:
    """The source of that name, with its one-line summary taken from its module.

    Installed packages are looked through only for a name that is not built in; an entry point is a module with
    `SOURCE`.
    """
    module = importlib.import_module(f"rollbook.sources.{name}") if name in NAMES else _plugged(name)
    summary = (module.__doc__ or "").partition("\n")[0]
    declared: Source = module.SOURCE
    return dataclasses.replace(declared, name=name, summary=summary)


@functools.cache
def plugged() -> dict[str, Any]:
    """The entry points of sources that other packages bring, by name; those of built-in names do not count."""
    from importlib import metadata  # noqa: PLC0415 - looking through all packages takes its time

    return {entry.name: entry for entry in metadata.entry_points(group=GROUP) if entry.name not in NAMES}


def known(name: str) -> Source | None:
    """The source of that name, None where nothing that is installed brings it: a record may come from elsewhere."""
    return source(name) if name in NAMES or name in plugged() else None


def _plugged(name: str) -> Any:
    """The module of a source that another package brings."""
    found = plugged()
    if name not in found:
        raise UsageError(f"no source is called {name!r}; `rollbook snapshot --list-sources` lists them")
    try:
        return found[name].load()
    except Exception as error:  # whatever a plug-in does when imported
        raise UsageError(f"the source {name!r} ({found[name].value}) cannot be loaded: {error!r}") from error


def load() -> list[Source]:
    """All sources: those built in, in the order of the table, and those that other packages bring."""
    return [source(name) for name in (*NAMES, *plugged())]
