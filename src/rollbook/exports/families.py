"""Names of metrics for other tools: those of node_exporter if it has the metric, else `rollbook_TABLE_COLUMN`.

Units are the base units of Prometheus (bytes, seconds, joules); a counter's name ends in `_total`. Derived metrics,
which are pushed, are gauges called `rollbook_host_METRIC` and `rollbook_device_METRIC`: a sum over one of these names
counts nothing twice.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal

from rollbook.metrics.metric import VALUES, Metric

__all__ = ["LABELS", "Column", "Gauge", "families", "gauge_of"]

Kind = Literal["counter", "gauge", "unknown"]

# Factor and divisor to the base unit, and the suffix of the name.
UNITS = {
    "KiB": (1024, 1, "bytes"),
    "MiB": (1 << 20, 1, "bytes"),
    "bytes": (1, 1, "bytes"),
    "sectors": (512, 1, "bytes"),
    "ms": (1, 1000, "seconds"),
    "µs": (1, 1_000_000, "seconds"),
    "s": (1, 1, "seconds"),
    "ticks": (1, 100, "seconds"),  # USER_HZ is 100 wherever Linux shows ticks to programs
    "µJ": (1, 1_000_000, "joules"),
    "°C": (1, 1, "celsius"),
    "W": (1, 1, "watts"),
    "MHz": (1_000_000, 1, "hertz"),
    "%": (1, 1, "percent"),
    "B": (1, 1, "bytes"),
    "B/s": (1, 1, "bytes_per_second"),
    "1/s": (1, 1, "per_second"),
    "pages/s": (1, 1, "pages_per_second"),
}
NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_]")
OWN_UNIT = re.compile(r"_(ms|us|uj|kib|mib|bytes|percent|watts|mhz|seconds)$")

LABELS: dict[str, dict[str, str]] = {
    "diskstats": {"device": "device_name"},
    "net_dev": {"device": "interface_name"},
    "stat": {"cpu": "substr(cpu, 4)"},
    "softnet": {"cpu": "regexp_replace(cpu, '^cpu', '')"},
    "infiniband_counters": {"device": "split_part(port, ':', 1)", "port": "split_part(port, ':', 2)"},
    "nfs": {"export": "export", "mountpoint": "mount_point"},
    "nfs_ops": {"mountpoint": "mount_point", "operation": "operation"},
    "rapl": {"zone": "zone", "name": "name"},
    "thermal": {"sensor": "sensor", "chip": "chip", "label": "label"},
}
"""Labels, with the SQL of their values, of tables whose keys have other names in node_exporter or are not enough."""

# Names in node_exporter, without unit and `_total`, which follow from the column.
NODE: dict[str, dict[str, str]] = {
    "loadavg": {"load_1min": "load1", "load_5min": "load5", "load_15min": "load15"},
    "stat_totals": {
        "ctxt": "context_switches",
        "processes": "forks",
        "procs_running": "procs_running",
        "procs_blocked": "procs_blocked",
        "interrupts": "intr",
    },
    "diskstats": {
        "reads_completed": "disk_reads_completed",
        "reads_merged": "disk_reads_merged",
        "sectors_read": "disk_read",
        "time_reading_ms": "disk_read_time",
        "writes_completed": "disk_writes_completed",
        "writes_merged": "disk_writes_merged",
        "sectors_written": "disk_written",
        "time_writing_ms": "disk_write_time",
        "ios_in_progress": "disk_io_now",
        "time_doing_ios_ms": "disk_io_time",
        "weighted_time_doing_ios_ms": "disk_io_time_weighted",
        "discards_completed": "disk_discards_completed",
        "discards_merged": "disk_discards_merged",
        "sectors_discarded": "disk_discarded_sectors",
        "time_discarding_ms": "disk_discard_time",
        "flush_requests_completed": "disk_flush_requests",
        "time_flushing_ms": "disk_flush_requests_time",
    },
    "net_dev": {
        f"{side}_{ours}": f"network_{way}_{name}"
        for side, way in (("rx", "receive"), ("tx", "transmit"))
        for ours, name in {
            "bytes": "bytes",
            "packets": "packets",
            "errors": "errs",
            "dropped": "drop",
            "fifo": "fifo",
            "frame": "frame",
            "compressed": "compressed",
            "multicast": "multicast",
            "collisions": "colls",
            "carrier": "carrier",
        }.items()
    },
    "softnet": {
        "processed": "softnet_processed",
        "dropped": "softnet_dropped",
        "time_squeeze": "softnet_times_squeezed",
    },
    "infiniband_counters": {
        "rx_bytes": "infiniband_port_data_received",
        "tx_bytes": "infiniband_port_data_transmitted",
        "symbol_error": "infiniband_symbol_error",
        "link_downed": "infiniband_link_downed",
        "link_error_recovery": "infiniband_link_error_recovery",
    },
    "nfs": {
        "age_seconds": "mountstats_nfs_age",
        "normal_read_bytes": "mountstats_nfs_read",
        "normal_written_bytes": "mountstats_nfs_write",
        "direct_read_bytes": "mountstats_nfs_direct_read",
        "direct_written_bytes": "mountstats_nfs_direct_write",
        "server_read_bytes": "mountstats_nfs_total_read",
        "server_written_bytes": "mountstats_nfs_total_write",
        "pages_read": "mountstats_nfs_read_pages",
        "pages_written": "mountstats_nfs_write_pages",
    },
    "nfs_ops": {
        "ops": "mountstats_nfs_operations_requests",
        "transmissions": "mountstats_nfs_operations_transmissions",
        "timeouts": "mountstats_nfs_operations_major_timeouts",
        "bytes_sent": "mountstats_nfs_operations_sent",
        "bytes_received": "mountstats_nfs_operations_received",
        "queue_ms": "mountstats_nfs_operations_queue_time",
        "rtt_ms": "mountstats_nfs_operations_response_time",
        "execute_ms": "mountstats_nfs_operations_request_time",
    },
}
EACH_CPU = "cpu <> 'cpu'"  # that row is the sum of the others
GUEST_MODES = {"guest": "user", "guest_nice": "nice"}
PRESSURE = {"some_total_us": "waiting", "full_total_us": "stalled"}
UNTYPED = {"vmstat": "node_vmstat", "net_snmp": "node_netstat"}  # named as in the kernel, as node_exporter does


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a table as a part of a family: `labels` distinguish it from the others, `where` picks its rows.

    If `keyless`, `where` fixes the key, which is part of the family's name instead of a label.
    """

    table: str
    name: str
    family: str
    kind: Kind
    factor: int = 1
    divisor: int = 1
    labels: tuple[tuple[str, str], ...] = ()
    where: str = ""
    keyless: bool = False

    @property
    def metric(self) -> str:
        """The name of its samples."""
        return f"{self.family}_total" if self.kind == "counter" else self.family


@dataclasses.dataclass(frozen=True)
class Gauge:
    """A derived metric in base units: the names of its series for hosts and for devices, its unit, and the factor."""

    host: str
    device: str
    unit: str
    factor: int
    divisor: int


def gauge_of(metric: Metric) -> Gauge:
    """The derived metric for other tools."""
    factor, divisor, unit = UNITS.get(metric.unit, (1, 1, ""))
    name = NOT_ALLOWED.sub("_", f"{metric.name}_{unit}" if unit else metric.name)
    return Gauge(f"rollbook_host_{name}", f"rollbook_device_{name}", unit, factor, divisor)


def families(tables: Mapping[str, Mapping[str, tuple[str, str]]]) -> dict[str, list[Column]]:
    """The families of all numbers in the tables, by name; `tables` has the mode and unit of each column.

    Some names come from hosts: characters that are not allowed become `_`, and the later of two equal names gets a
    number.
    """
    found: dict[str, list[Column]] = {}
    for table, columns in tables.items():
        for name, (mode, unit) in columns.items():
            if mode in VALUES:
                for column in _columns(table, name, "gauge" if mode == "gauge" else "counter", unit):
                    free = _free(column, found)
                    found.setdefault(free.family, []).append(free)
    return found


def _free(column: Column, found: Mapping[str, list[Column]]) -> Column:
    """The column under a name that is not taken by another with the same labels."""
    free, number = column, 2
    while any(other.labels == column.labels or other.kind != column.kind for other in found.get(free.family, ())):
        free = dataclasses.replace(column, family=f"{column.family}_{number}")
        number += 1
    return free


def _columns(table: str, name: str, kind: Kind, unit: str) -> list[Column]:
    factor, divisor, word = UNITS.get(unit, (1, 1, ""))
    plain = Column(table, name, "", kind, factor, divisor)
    if table == "stat":
        family = "node_cpu_guest_seconds" if name in GUEST_MODES else "node_cpu_seconds"
        return [_named(plain, family, labels=(("mode", GUEST_MODES.get(name, name)),), where=EACH_CPU)]
    if table == "pressure" and name in PRESSURE:
        return [
            _named(plain, f"node_pressure_{one}_{PRESSURE[name]}_seconds", where=f"resource = '{one}'", keyless=True)
            for one in ("cpu", "io", "memory", "irq")
        ]
    if table == "meminfo":
        return [_named(plain, "_".join(filter(None, ("node_memory", name.replace(")", ""), word))))]
    if table in UNTYPED:
        return [_named(plain, f"{UNTYPED[table]}_{name}", kind="unknown")]
    known = NODE.get(table, {}).get(name)
    stem = f"node_{known}" if known else f"rollbook_{table}_{OWN_UNIT.sub('', name)}"
    if stem.endswith("_sectors"):
        return [_named(plain, stem, factor=1)]
    return [_named(plain, stem if not word or stem.endswith(word) else f"{stem}_{word}")]


def _named(column: Column, family: str, **more: Any) -> Column:
    return dataclasses.replace(column, family=NOT_ALLOWED.sub("_", family), **more)
