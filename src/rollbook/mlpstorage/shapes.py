"""A host's facts in the shape that MLPerf Storage's collectors return per host: the same keys for every transport."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rollbook.mlperf.node import Entry, node_of
from rollbook.records.cluster import HostCPUInfo, HostSystemInfo
from rollbook.records.hosts import HostResult
from rollbook.sources.cpu_topology import Topology
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.sources.dmi import Machine
from rollbook.sources.meminfo import MemInfo
from rollbook.sources.sysctl import Sysctl
from rollbook.sources.vmstat import VmStat

__all__ = ["SOURCES", "plain_rows", "raw_record", "sample_value"]

UNKNOWN_THERE = ("device_number", "extra")  # keys that those tools do not know
# Keys of a host's record, and the sources they come from.
SOURCES = {
    "meminfo": "meminfo",
    "vmstat": "vmstat",
    "loadavg": "loadavg",
    "diskstats": "diskstats",
    "netdev": "net_dev",
    "mounts": "mounts",
    "cgroups": "cgroups",
}


def plain_rows(rows: Sequence[msgspec.Struct]) -> list[dict[str, Any]]:
    """Rows as dicts, without what is not known and without keys of our own."""
    found = (msgspec.to_builtins(row) for row in rows)
    return [{k: v for k, v in row.items() if v is not None and k not in UNKNOWN_THERE} for row in found]


def sample_value(fact: Any) -> Any:
    """A fact as it stands in a sample: rows as dicts, and what the kernel writes as names and numbers as one dict."""
    if isinstance(fact, list):
        return plain_rows(fact)
    if isinstance(fact, MemInfo):
        return {**fact.kib, **fact.counts}
    if isinstance(fact, VmStat):
        return {**fact.gauges, **fact.counters}
    return plain_rows([fact])[0]


def raw_record(host: HostResult) -> dict[str, Any]:
    """All that a host gave, under the collectors' keys; `error` alone where it gave nothing."""
    if not host.gave_data:
        return {"hostname": host.name, "error": f"{host.status}: {host.reason}"}
    found: dict[str, Any] = {
        "hostname": host.hostname or host.name,
        "collection_timestamp": host.collected_at,
        "requested_name": host.name,
        "machine_id": host.machine_id,
        "boot_id": host.boot_id,
    }
    for key, source in SOURCES.items():
        if source in host.facts:
            found[key] = sample_value(host.facts[source])
    found |= _system(host) | _hardware(host)
    errors = {
        name: f"{reading.status}: {reading.note}".rstrip(": ")
        for name, reading in host.readings.items()
        if reading.status in ("denied", "timed-out", "truncated", "failed") and name not in host.facts
    }
    return {**found, "errors": errors} if errors else found


def _system(host: HostResult) -> dict[str, Any]:
    system, machine = HostSystemInfo.of(host), host.fact(Machine)
    found = {
        "version": system.kernel_version or None,
        "os_release": system.os_release or None,
        "uptime_seconds": system.uptime_seconds,
        "chassis_model": (machine.product_name if machine else None) or "",
    }
    return {key: value for key, value in found.items() if value is not None}


def _hardware(host: HostResult) -> dict[str, Any]:
    """CPUs, cards and drives one by one, settings by name."""
    node = node_of(host, {})
    found: dict[str, Any] = {
        "networking": [_plain(row, "type", "state", "speed") for row in _each(node["networking"])],
        "drives": [
            _plain(row, "vendor_name", "model_name", "interface", "capacity_in_GB") for row in _each(node["drives"])
        ],
    }
    if "environment" in host.facts:
        found["environment"] = [_plain(row, "name", "value") for row in node["environment"]]
    if settings := host.fact(Sysctl):
        found["sysctl"] = [{"name": name, "value": value} for name, value in settings.settings.items()]
    if cpu := host.fact(CpuInfo):
        found["cpuinfo"] = _cpus(host, cpu)
    return found


def _each(rows: Sequence[dict[str, Entry]]) -> Iterator[dict[str, Entry]]:
    """Rows that stand for several, as often as there are."""
    for row in rows:
        yield from [row] * row["unit_count"].value


def _plain(row: dict[str, Entry], *names: str) -> dict[str, Any]:
    return {name: row[name].value for name in names if name in row and row[name].value is not None}


def _cpus(host: HostResult, cpu: CpuInfo) -> list[dict[str, Any]]:
    """One dict per logical CPU. Sockets and cores are dealt out evenly, so that counting them gives what there is."""
    known = HostCPUInfo.of(cpu, host.fact(Topology))
    sockets, cores = known.num_sockets or 1, known.num_cores or cpu.logical_cpus
    shared = {
        "model name": cpu.model,
        "vendor_id": cpu.vendor,
        "microcode": cpu.microcode,
        "flags": " ".join(cpu.flags),
    }
    return [
        {
            "processor": number,
            **{name: value for name, value in shared.items() if value},
            "physical id": number % cores % sockets,
            "core id": number % cores // sockets,
            "cpu cores": max(1, cores // sockets),
        }
        for number in range(cpu.logical_cpus)
    ]
