"""A host's facts in the shape that MLPerf Storage's collectors return per host: the same keys for every transport.

What was not read has the tool's empty value and is named in `errors`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from rollbook.mlperf.node import Entry, node_of
from rollbook.mlpstorage.standalone import READERS
from rollbook.records.cluster import HostCPUInfo, HostSystemInfo
from rollbook.records.hosts import HostResult
from rollbook.records.timeseries import NOT_IN_TOOL, SAMPLED
from rollbook.sources.cpu_topology import Topology
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.sources.dmi import Machine
from rollbook.sources.meminfo import MemInfo
from rollbook.sources.sysctl import Sysctl
from rollbook.sources.vmstat import VmStat

__all__ = ["SOURCES", "failed_host", "hardware", "raw_host", "sample_value"]

# Keys of a host's record, and the sources they come from.
SOURCES = {
    **SAMPLED,
    "mounts": "mounts",
    "cgroups": "cgroups",
    "cpuinfo": "cpuinfo",
    "version": "version",
    "os_release": "os_release",
    "uptime_seconds": "uptime",
}
INTERFACES = ("nvme", "sata", "sas")  # of the drives that the tool lists
DRIVE = ("interface", "capacity_in_GB")
DIRECT = ("meminfo", "vmstat", "loadavg", "diskstats", "netdev", "mounts", "cgroups")


def sample_value(fact: Any) -> Any:
    """Return a fact as it stands in a sample: rows as dicts, names and numbers as one dict."""
    if isinstance(fact, list):
        return _plain_rows(fact)
    if isinstance(fact, MemInfo):
        return {**fact.kib, **fact.counts}
    if isinstance(fact, VmStat):
        return {**fact.gauges, **fact.counters}
    return _plain_rows([fact])[0]


def _plain_rows(rows: Sequence[msgspec.Struct]) -> list[dict[str, Any]]:
    built = (msgspec.to_builtins(row) for row in rows)
    return [{k: v for k, v in row.items() if v is not None and k not in NOT_IN_TOOL} for row in built]


def failed_host(name: str, text: str) -> dict[str, Any]:
    """Return the record of a host that returned no data; its two keys mark it as failed."""
    return {"hostname": name, "error": text}


def raw_host(host: HostResult) -> dict[str, Any]:
    """Return all data of a host, under the collectors' keys."""
    if not host.gave_data:
        return failed_host(host.name, f"{host.status}: {host.reason}")
    found: dict[str, Any] = {
        "hostname": host.hostname or host.name,
        "collection_timestamp": host.collected_at,
        "requested_name": host.name,
        "machine_id": host.machine_id,
        "boot_id": host.boot_id,
        "collection_method": host.method,
    }
    for key in DIRECT:
        if SOURCES[key] in host.facts:
            found[key] = sample_value(host.facts[SOURCES[key]])
    system = HostSystemInfo.of(host)
    known = {
        "version": system.kernel_version or None,
        "os_release": system.os_release or None,
        "uptime_seconds": system.uptime_seconds,
    }
    found |= {key: value for key, value in known.items() if value is not None} | hardware(host)
    errors = {
        name: f"{reading.status}: {reading.note}".rstrip(": ")
        for name, reading in host.readings.items()
        if reading.status in ("denied", "timed-out", "truncated", "failed") and name not in host.facts
    }
    for key, (_, _, empty) in READERS.items():
        if key not in found:
            found[key] = empty.copy() if isinstance(empty, dict | list) else empty
            source = SOURCES[key]
            errors.setdefault("uptime" if key == "uptime_seconds" else key, errors.pop(source, "not read"))
    found["uptime"] = found["uptime_seconds"]
    return {**found, "errors": errors} if errors else found


def hardware(host: HostResult) -> dict[str, Any]:
    """Return the machine, its CPUs, network cards and drives one by one, and its settings by name."""
    node, machine, settings = node_of(host, {}), host.fact(Machine), host.fact(Sysctl)
    found: dict[str, Any] = {
        "chassis_model": (machine.product_name if machine else None) or "",
        "networking": [_plain(row, "type", "state", "speed") for row in _each(node["networking"])],
        "drives": [
            {"vendor_name": "", "model_name": "", **_plain(row, "vendor_name", "model_name", *DRIVE)}
            for row in _each(node["drives"])
            if row["interface"].value in INTERFACES
        ],
        "environment": [_plain(row, "name", "value") for row in node["environment"]],
        "sysctl": [{"name": name, "value": value} for name, value in (settings.settings if settings else {}).items()],
    }
    if cpu := host.fact(CpuInfo):
        found["cpuinfo"] = _cpus(host, cpu)
    return found


def _each(rows: Sequence[dict[str, Entry]]) -> Iterator[dict[str, Entry]]:
    """Repeat rows that stand for several units."""
    for row in rows:
        yield from [row] * row["unit_count"].value


def _plain(row: dict[str, Entry], *names: str) -> dict[str, Any]:
    return {name: row[name].value for name in names if name in row and row[name].value is not None}


def _cpus(host: HostResult, cpu: CpuInfo) -> list[dict[str, Any]]:
    """Return a dict for each logical CPU; sockets and cores are assigned so that their counts are right."""
    counts = HostCPUInfo.of(cpu, host.fact(Topology))
    sockets, cores = counts.num_sockets or 1, counts.num_cores or cpu.logical_cpus
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
