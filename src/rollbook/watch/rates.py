"""Rates of one host from its samples as they come, under the names and by the rules of a record's view `rates`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rollbook.records.hosts import HostRecord
from rollbook.series.counters import rise, rise_ticks, steady
from rollbook.series.totals import counted_disks, counted_interfaces
from rollbook.sources.base import Record
from rollbook.sources.loadavg import LoadAvg
from rollbook.sources.meminfo import MemInfo
from rollbook.sources.pressure import Pressure
from rollbook.sources.stat import Cpu

__all__ = ["COLUMNS", "FACTS", "SAMPLED", "HostRates", "Values"]

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
CPU_TIME = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # guest time is in user and nice
MOST_ROWS, MOST_LISTS = 10_000, 16  # kept of a host; one that names new devices at every beat must not fill our memory

Values = dict[str, float]


class Flow(NamedTuple):
    """What devices of one kind move: the field with their name, which of them count, and the fields by column."""

    name: str
    counted: Callable[[Sequence[str], Sequence[HostRecord]], list[str]]
    unit: int
    fields: dict[str, str]


FLOWS = {
    "diskstats": Flow(
        "device_name", counted_disks, 512, {"disk_read": "sectors_read", "disk_write": "sectors_written"}
    ),
    "net_dev": Flow("interface_name", counted_interfaces, 1, {"net_rx": "rx_bytes", "net_tx": "tx_bytes"}),
}


class HostRates:
    """`values` are those of the beat under way by column, `devices` the flows of each device that counts.

    What was not read, or has no rate yet, is in neither.
    """

    def __init__(self, step: float) -> None:
        self.step = step
        self.values: Values = {}
        self.devices: dict[str, Values] = {}
        self._facts = HostRecord(name="", status="partial")
        self._before: dict[tuple[str, str], tuple[int, int, Any]] = {}
        self._counted: dict[tuple[str, ...], list[str]] = {}

    def begin(self) -> None:
        """A new beat: nothing is known of it yet."""
        self.values, self.devices = {}, {}
        if len(self._before) > MOST_ROWS:
            self._before.clear()

    def learn(self, source: str, fact: Any) -> None:
        """A fact of the host."""
        self._facts.facts[source] = fact
        self._counted.clear()

    def take(self, source: str, found: Any, ts: int, mono: int) -> None:
        """What a source gave at this beat; the times are the collector's and the host's, in nanoseconds."""
        if isinstance(found, LoadAvg):
            self.values["load_1min"] = found.load_1min
        elif isinstance(found, MemInfo):
            if (available := found.kib.get("MemAvailable")) is not None:
                self.values["mem_available"] = 1024.0 * available
        elif source in FLOWS:
            self._flows(source, found, ts, mono)
        else:
            for row in found:
                if isinstance(row, Cpu) and row.cpu == "cpu":
                    self._cpu(row, ts, mono)
                elif isinstance(row, Pressure):
                    self._pressure(row, ts, mono)

    def _cpu(self, row: Cpu, ts: int, mono: int) -> None:
        before, _ = self._since("stat", row.cpu, row, ts, mono)
        if before is None:
            return
        spent = {name: rise_ticks(getattr(row, name), getattr(before, name)) for name in CPU_TIME}
        if total := sum(spent.values()):
            self.values["cpu_busy"] = 100 * (1 - (spent["idle"] + spent["iowait"]) / total)
            self.values["cpu_iowait"] = 100 * spent["iowait"] / total

    def _pressure(self, row: Pressure, ts: int, mono: int) -> None:
        before, seconds = self._since("pressure", row.resource, row, ts, mono)
        column = f"psi_{row.resource}"
        if before is None or column not in COLUMNS or row.some_total_us is None or before.some_total_us is None:
            return
        if (risen := rise(row.some_total_us, before.some_total_us)) is not None:
            self.values[column] = risen / seconds / 1e4  # microseconds of waiting per second, as a share

    def _flows(self, source: str, rows: Sequence[Record], ts: int, mono: int) -> None:
        flow = FLOWS[source]
        by_name = {getattr(row, flow.name): row for row in rows}
        names = tuple(by_name)
        if names not in self._counted:
            if len(self._counted) > MOST_LISTS:
                self._counted.clear()
            self._counted[names] = flow.counted(names, [self._facts])
        for name in self._counted[names]:
            before, seconds = self._since(source, name, by_name[name], ts, mono)
            if before is None:
                continue
            for column, field in flow.fields.items():
                if (risen := rise(getattr(by_name[name], field), getattr(before, field))) is not None:
                    moved = flow.unit * risen / seconds
                    self.devices.setdefault(name, {})[column] = moved
                    self.values[column] = self.values.get(column, 0.0) + moved

    def _since(self, source: str, key: str, row: Any, ts: int, mono: int) -> tuple[Any, float]:
        """The same row at its beat before and the seconds since; None where the two do not belong together."""
        ts_before, mono_before, before = self._before.get((source, key), (ts, mono, None))
        self._before[source, key] = (ts, mono, row)
        seconds = (mono - mono_before) / 1e9
        return (before if steady(seconds, (ts - ts_before) / 1e9, self.step) else None), seconds
