"""The built-in sources in reading order, cheap and important ones first, and sources of plug-ins."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any

from rollbook.errors import UsageError
from rollbook.sources.base import Source

__all__ = ["GROUP", "NAMES", "find", "load", "plugins", "source"]

GROUP = "rollbook.sources"
"""Entry point group of plug-in sources."""

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
    """The source with that name; its summary is the first line of its module's docstring.

    Plug-ins are searched only for names that are not built in; their entry point is a module with `SOURCE`. Raises
    `UsageError` for an unknown name or a plug-in that cannot be loaded.
    """
    module = importlib.import_module(f"rollbook.sources.{name}") if name in NAMES else _plugin_module(name)
    summary = (module.__doc__ or "").partition("\n")[0]
    declared: Source = module.SOURCE
    return dataclasses.replace(declared, name=name, summary=summary)


@functools.cache
def plugins() -> dict[str, Any]:
    """Entry points of plug-in sources by name; they cannot replace built-in sources."""
    from importlib import metadata  # noqa: PLC0415 - scanning all packages is slow

    return {entry.name: entry for entry in metadata.entry_points(group=GROUP) if entry.name not in NAMES}


def find(name: str) -> Source | None:
    """The source with that name, or None: a record may contain sources of plug-ins that are not installed."""
    return source(name) if name in NAMES or name in plugins() else None


def _plugin_module(name: str) -> Any:
    found = plugins()
    if name not in found:
        raise UsageError(f"no source is called {name!r}; `rollbook snapshot --list-sources` lists them")
    try:
        return found[name].load()
    except Exception as error:  # whatever a plug-in does when imported
        raise UsageError(f"cannot load source {name!r} ({found[name].value}): {error!r}") from error


def load() -> list[Source]:
    """All sources: built-in ones in reading order, then those of plug-ins."""
    return [source(name) for name in (*NAMES, *plugins())]
