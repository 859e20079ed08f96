"""Rates of one host from its samples as they come, under the names and by the rules of a record's view `rates`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rollbook.record.hosts import HostRecord
from rollbook.series.counters import rise, rise_ticks, steady
from rollbook.series.totals import counted_disks, counted_interfaces
from rollbook.sources.base import Record
from rollbook.sources.diskstats import Disk
from rollbook.sources.loadavg import LoadAvg
from rollbook.sources.meminfo import MemInfo
from rollbook.sources.net_dev import Interface
from rollbook.sources.pressure import Pressure
from rollbook.sources.stat import Cpu

__all__ = ["COLUMNS", "FACTS", "SAMPLED", "HostRates"]

COLUMNS = (
    "cpu_busy",
    "cpu_iowait",
    "disk_read",
    "disk_write",
    "net_rx",
    "net_tx",
    "mem_available",
    "load_1min",
    "psi_cpu",
    "psi_memory",
    "psi_io",
)
SAMPLED = ("loadavg", "meminfo", "stat", "diskstats", "net_dev", "pressure")
FACTS = ("block", "net_class")
"""What tells which devices count in a host's totals."""
TICKS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
SECTOR = 512

Values = dict[str, float]


class HostRates:
    """`values` are those of the beat under way by column, `devices` the same for each disk and interface.

    What was not read, or has no rate yet, is not in them.
    """

    def __init__(self, step: float) -> None:
        self.step = step
        self.values: Values = {}
        self.devices: dict[str, Values] = {}
        self.facts = HostRecord(name="", status="partial")
        self._before: dict[tuple[str, str], tuple[int, int, Any]] = {}
        self._counted: dict[tuple[str, ...], list[str]] = {}

    def begin(self) -> None:
        """A new beat: nothing is known of it."""
        self.values, self.devices = {}, {}

    def learn(self, source: str, fact: Any) -> None:
        """A fact of the host."""
        self.facts.facts[source] = fact
        self._counted.clear()

    def take(self, source: str, ts: int, mono: int, found: Any) -> None:
        """What a source gave at this beat: its record, or its rows; times in ns, the collector's and the host's."""
        if isinstance(found, LoadAvg):
            self.values["load_1min"] = found.load_1min
        elif isinstance(found, MemInfo):
            if (available := found.kib.get("MemAvailable")) is not None:
                self.values["mem_available"] = 1024.0 * available
        elif source == "stat":
            self._cpu(next((row for row in found if row.cpu == "cpu"), None), ts, mono)
        elif source == "pressure":
            for row in found:
                self._pressure(row, ts, mono)
        elif source == "diskstats":
            self._devices(found, Disk, counted_disks, {"disk_read": "sectors_read", "disk_write": "sectors_written"}, ts, mono)
        elif source == "net_dev":
            self._devices(found, Interface, counted_interfaces, {"net_rx": "rx_bytes", "net_tx": "tx_bytes"}, ts, mono)
