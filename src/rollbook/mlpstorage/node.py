"""One client as MLPerf Storage describes it: what was measured, what follows from it, and what a person must say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from rollbook.checks.views import views
from rollbook.record.cluster import HostInfo
from rollbook.record.hosts import HostRecord
from rollbook.sources.block import Block
from rollbook.sources.cloud import Cloud
from rollbook.sources.dmi import Machine
from rollbook.sources.environment import Environment
from rollbook.sources.net_class import Interface
from rollbook.sources.os_release import OsRelease

__all__ = ["Entry", "Origin", "Traffic", "ask", "deployment_of", "inferred", "measured", "node_of"]

Origin = Literal["measured", "inferred", "ask", "kept"]
Traffic = Mapping[str, list[str]]
"""Roles of interfaces by name, as far as the series suggests them."""

GIB, GB = 1024**3, 10**9
ETHERNET = 1  # ARPHRD_ETHER
DRIVE_INTERFACES = ("nvme", "sas", "sata")


class Entry(msgspec.Struct, frozen=True):
    """A value of the description, and how it came about."""

    value: Any
    origin: Origin
    note: str = ""


def measured(value: Any, note: str = "") -> Entry:
    """A value that was read on the hosts; asked for where it could not be."""
    return Entry(value, "measured", note) if value not in (None, "") else Entry(None, "ask", note)


def inferred(value: Any, note: str) -> Entry:
    """A value that follows from what was read, and should be looked at."""
    return Entry(value, "inferred", note)


def ask(note: str) -> Entry:
    """A value that no host can tell."""
    return Entry(None, "ask", note)


def deployment_of(host: HostRecord) -> Entry:
    """Cloud where the firmware names a provider; on premises where it names a machine and no hypervisor."""
    cloud, machine = host.facts.get("cloud"), host.facts.get("dmi")
    if isinstance(cloud, Cloud) and cloud.provider:
        return inferred("cloud", f"the firmware names {cloud.provider}")
    if isinstance(machine, Machine) and machine.product_name and not (isinstance(cloud, Cloud) and cloud.hypervisor):
        return inferred("onprem", f"a machine of {machine.sys_vendor or 'its own'}")
    return ask("onprem or cloud")


def node_of(host: HostRecord, traffic: Traffic, *, cloud: bool) -> dict[str, Any]:
    """The node that a host is, without its quantity; two hosts that are alike give equal nodes."""
    info, release = HostInfo.of(host), host.facts.get("os_release")
    cpu = info.cpu if info else None
    instance = host.facts.get("cloud")
    model = instance.instance_type if isinstance(instance, Cloud) and instance.instance_type else None
    return {
        "chassis": {
            "model_name": measured(model or (info.chassis_model if info else None)),
            "rack_units": ask("height in rack units"),
            "cpu_model": measured(cpu.model if cpu else None),
            "cpu_qty": measured(cpu.num_sockets if cpu else None, "sockets"),
            "cpu_cores": measured(cpu.num_cores if cpu else None, "physical cores of all sockets"),
            "memory_capacity": measured(round(info.memory.total / GIB) if info else None, "GiB of usable memory"),
            "power": ask("power supplies"),
        }
        if not cloud
        else {
            "model_name": measured(model or (info.chassis_model if info else None)),
            "cpu_model": measured(cpu.model if cpu else None),
            "cpu_qty": measured(cpu.num_sockets if cpu else None, "sockets"),
            "cpu_cores": measured(cpu.num_cores if cpu else None, "physical cores of all sockets"),
            "memory_capacity": measured(round(info.memory.total / GIB) if info else None, "GiB of usable memory"),
        },
        "networking": _networking(host, traffic),
        "drives": _drives(host),
        "operating_system": {
            "name": measured(release.fields.get("NAME") or release.id if isinstance(release, OsRelease) else None),
            "version": measured(release.version_id if isinstance(release, OsRelease) else None),
        },
        "environment": _environment(host),
    }
