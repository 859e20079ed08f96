"""One host in the terms of MLPerf Storage's system description: values by dotted path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from rollbook.checks.mlperf_values import GIB, is_size, table
from rollbook.checks.views import View, views
from rollbook.records.cluster import HostInfo
from rollbook.records.hosts import HostResult
from rollbook.sources.cloud import Cloud
from rollbook.sources.dmi import Machine
from rollbook.sources.environment import Environment
from rollbook.sources.infiniband import Port
from rollbook.sources.net_class import Interface
from rollbook.sources.os_release import OsRelease

__all__ = ["STACKED", "Entry", "Origin", "Roles", "collected_node", "deployment_of", "node_of"]

Origin = Literal["measured", "inferred", "ask", "kept"]
Roles = Mapping[str, list[str]]
"""The use of each interface by name, inferred from the series."""

GB = 10**9
ETHERNET = 1  # ARPHRD_ETHER
STACKED = ("bond", "bridge", "vlan")
"""Kinds of interfaces whose traffic is that of the cards below them."""


class Entry(msgspec.Struct, frozen=True):
    """A value of the description, its origin and a note. None must be filled in by a person."""

    value: Any
    origin: Origin
    note: str = ""


def deployment_of(host: HostResult) -> Entry:
    """`cloud` if the firmware names a provider, `onprem` if it names a machine and no hypervisor."""
    cloud, machine = host.fact(Cloud), host.fact(Machine)
    if cloud and cloud.provider:
        return Entry("cloud", "inferred", f"the firmware names {cloud.provider}")
    if machine and machine.product_name and not (cloud and cloud.hypervisor):
        return Entry("onprem", "inferred", "the firmware names a machine and no cloud")
    return Entry(None, "ask")


def node_of(host: HostResult, roles: Roles) -> dict[str, Any]:
    """The values of a host by path; equal hosts have equal nodes."""
    info, release, cloud = HostInfo.of(host), host.fact(OsRelease), host.fact(Cloud)
    found: dict[str, Any] = {
        "networking": _networking(host, roles),
        "drives": _drives(host),
        "environment": _environment(host),
    }
    if info is not None:
        found["chassis.memory_capacity"] = Entry(round(info.memory.total / GIB), "measured", "GiB of usable memory")
        instance = cloud.instance_type if cloud else None
        found["chassis.model_name"] = Entry(instance or info.chassis_model, "measured")
        if info.cpu is not None:
            found["chassis.cpu_model"] = Entry(info.cpu.model or None, "measured")
            found["chassis.cpu_qty"] = Entry(info.cpu.num_sockets, "measured", "sockets")
            found["chassis.cpu_cores"] = Entry(info.cpu.num_cores, "measured", "physical cores of all sockets")
    if release is not None:
        found["operating_system.name"] = Entry(release.fields.get("NAME") or release.id, "measured")
        found["operating_system.version"] = Entry(release.version_id, "measured")
    return found


def collected_node(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client by path, from one host of a result's cluster information; missing values are left out."""
    memory, cpu, system = (table(host.get(name)) for name in ("memory", "cpu", "system"))
    release, total = table(system.get("os_release")), memory.get("total")
    texts = {
        "chassis.model_name": host.get("chassis_model"),
        "chassis.cpu_model": cpu.get("model"),
        "operating_system.name": release.get("NAME"),
        "operating_system.version": release.get("VERSION_ID"),
    }
    counts = {
        "chassis.memory_capacity": round(total / GIB) if is_size(total) else None,
        "chassis.cpu_qty": cpu.get("num_sockets"),
        "chassis.cpu_cores": cpu.get("num_cores"),
    }
    found: dict[str, Any] = {path: value for path, value in texts.items() if isinstance(value, str) and value}
    found |= {path: int(value) for path, value in counts.items() if is_size(value) and value}
    return {path: Entry(value, "measured", "cluster information of the run") for path, value in found.items()}


def _view(name: str) -> View:
    return next(view for view in views() if view.name == name)


def _networking(host: HostResult, roles: Roles) -> list[dict[str, Entry]]:
    """Network cards, equal ones grouped. Bonds and VLANs are left out: their traffic is that of the cards."""
    cards: Counter[tuple[str, str, float | None, tuple[str, ...]]] = Counter()
    row: Interface
    for row in _view("net_class").fact(host) or []:
        if row.kind in STACKED:
            continue
        kind = "infiniband" if row.kind == "infiniband" else "ethernet" if row.type == ETHERNET else "other"
        up = row.operstate == "up" or (row.operstate == "unknown" and row.carrier is True)
        speed = row.speed_mbps / 1000 if up and row.speed_mbps else None
        cards[kind, "up" if up else "down", speed, tuple(roles.get(row.interface_name, ()))] += 1
    if not any(kind == "infiniband" for kind, *_ in cards):  # without an IP interface
        for port in host.rows(Port):
            if port.link_layer == "InfiniBand":
                up = port.state == "ACTIVE"
                cards["infiniband", "up" if up else "down", port.rate_gbps if up else None, ()] += 1
    return [
        {
            "unit_count": Entry(count, "measured"),
            "type": Entry(kind, "measured"),
            "state": Entry(state, "measured"),
            **({"speed": _speed(speed), "traffic": _traffic(used)} if state == "up" else {}),
        }
        for (kind, state, speed, used), count in sorted(cards.items(), key=str)
    ]


def _traffic(used: tuple[str, ...]) -> Entry:
    if used:
        return Entry(list(used), "inferred", "by the bytes it carried in the run")
    return Entry(None, "ask", "which of management, data, metadata, backend")


def _speed(speed: float | None) -> Entry:
    if speed is None:
        return Entry(None, "ask", "Gb/s")
    return Entry(int(speed) if speed.is_integer() else speed, "measured", "Gb/s")


def _drives(host: HostResult) -> list[dict[str, Entry]]:
    """Disks, equal ones grouped; the kind of flash cells cannot be read on a host."""
    disks: Counter[tuple[str | None, str | None, str, bool | None, int]] = Counter()
    for row in _view("block").fact(host) or []:
        bus = row.interface if row.interface in ("nvme", "sas", "sata") else "other"
        disks[row.vendor, row.model, bus, row.rotational, round((row.capacity_bytes or 0) / GB)] += 1
    return [
        {
            "unit_count": Entry(count, "measured"),
            "vendor_name": _measured(vendor, "its vendor"),
            "model_name": _measured(model, "its model"),
            "interface": Entry(bus, "measured"),
            # Virtual disks report that they rotate.
            "media_type": Entry("HDD", "measured")
            if rotational and bus != "other"
            else Entry(None, "ask", "TLC, QLC or other"),
            "capacity_in_GB": Entry(capacity, "measured"),
            "performance": Entry(None, "ask", "seq_read_MBps, seq_write_MBps, random_read_IOPS, random_write_IOPS"),
        }
        for (vendor, model, bus, rotational, capacity), count in sorted(disks.items(), key=str)
    ]


def _measured(value: str | None, question: str) -> Entry:
    return Entry(value, "measured") if value else Entry(None, "ask", question)


def _environment(host: HostResult) -> list[dict[str, Entry]]:
    """Environment variables that have a value and do not depend on rank or launch."""
    fact = host.fact(Environment)
    settings = fact.settings if fact else {}
    return [
        {"name": Entry(name, "measured"), "value": Entry(value, "measured")}
        for name, value in sorted(settings.items())
        if value
    ]
