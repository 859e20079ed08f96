"""Rates of one host from its samples as they come, under the names and by the rules of a record's view `rates`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rollbook.metrics.counters import GOOD_FOR, rise, rise_ticks, steady
from rollbook.metrics.totals import counted_disks, counted_interfaces, counted_mounts
from rollbook.records.hosts import HostResult
from rollbook.sources import catalogue
from rollbook.sources.amdgpu import AmdGpu
from rollbook.sources.base import Facts
from rollbook.sources.gpu import GpuLoad
from rollbook.sources.loadavg import LoadAvg
from rollbook.sources.meminfo import MemInfo
from rollbook.sources.pressure import Pressure
from rollbook.sources.stat import Cpu

__all__ = ["COLUMNS", "FACTS", "RARE", "SAMPLED", "HostRates", "Values"]

RARE = ("gpu_util", "gpu_memory", "rdma_rx", "rdma_tx", "nfs_read", "nfs_write")
"""Columns of what only some hosts have."""
COLUMNS = (
    "cpu_busy",
    "cpu_iowait",
    "disk_read",
    "disk_write",
    "net_rx",
    "net_tx",
    *RARE,
    "mem_available",
    "load_1min",
    "psi_cpu",
    "psi_memory",
    "psi_io",
)
SAMPLED = (
    *("loadavg", "meminfo", "stat", "diskstats", "net_dev", "pressure", "amdgpu", "gpu"),
    *("infiniband_counters", "nfs"),  # not on every beat, and therefore last
)
FACTS = ("block", "net_class", "mountinfo")
"""What tells which devices count in a host's totals."""
CPU_TIME = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")  # guest time is in user and nice
MOST_ROWS, MOST_LISTS = 10_000, 16  # kept of a host; one that names new devices at every beat must not fill our memory
MIB = 1 << 20

Values = dict[str, float]


def _all(names: Iterable[str], _: Sequence[HostResult]) -> list[str]:
    return list(names)


class Flow(NamedTuple):
    """What devices of one kind move: the field with their name, which of them count, and the fields by column."""

    name: str
    counted: Callable[[Sequence[str], Sequence[HostResult]], list[str]]
    unit: int
    fields: dict[str, str]


FLOWS = {
    "diskstats": Flow(
        "device_name", counted_disks, 512, {"disk_read": "sectors_read", "disk_write": "sectors_written"}
    ),
    "net_dev": Flow("interface_name", counted_interfaces, 1, {"net_rx": "rx_bytes", "net_tx": "tx_bytes"}),
    "infiniband_counters": Flow("port", _all, 1, {"rdma_rx": "rx_bytes", "rdma_tx": "tx_bytes"}),
    "nfs": Flow(
        "mount_point", counted_mounts, 1, {"nfs_read": "server_read_bytes", "nfs_write": "server_written_bytes"}
    ),
}
SLOW = [name for name in SAMPLED if catalogue.source(name).every > 1]


class HostRates:
    """`values` are those of the beat under way by column, `devices` those of each device that counts.

    What was not read, or has no rate yet, is in neither. `step` is the time between two beats that was asked for,
    `least` what a host cannot do better than.
    """

    def __init__(self, step: float) -> None:
        self.step, self.least = step, 0.0
        self.values: Values = {}
        self.devices: dict[str, Values] = {}
        self._beats = {name: catalogue.source(name).beats(step) for name in SAMPLED}
        self._facts = HostResult(name="", status="partial")
        self._before: dict[tuple[str, str], tuple[int, int, Any]] = {}
        self._counted: dict[tuple[str, ...], list[str]] = {}
        self._slow: dict[str, tuple[int, dict[str, Values]]] = {}

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
            moved = self._flows(source, found, ts, mono)
            if source in SLOW:
                self._slow[source] = (ts, moved)
            else:
                self._add(moved)
        else:
            for row in found:
                self._row(row, ts, mono)

    def end(self, ts: int) -> None:
        """All of the beat is in: what slow sources gave stands until their next sample is due."""
        for source, (since, moved) in self._slow.items():
            if ts - since <= GOOD_FOR * self._step_of(source) * 1e9:
                self._add(moved)
        for column, total in (("gpu_util", statistics.fmean), ("gpu_memory", sum)):
            if known := [device[column] for device in self.devices.values() if column in device]:
                self.values[column] = total(known)

    def _add(self, moved: dict[str, Values]) -> None:
        for device, values in moved.items():
            self.devices[device] = values
            for column, value in values.items():
                self.values[column] = self.values.get(column, 0.0) + value

    def _row(self, row: Facts, ts: int, mono: int) -> None:
        if isinstance(row, Cpu) and row.cpu == "cpu":
            self._cpu(row, ts, mono)
        elif isinstance(row, Pressure):
            self._pressure(row, ts, mono)
        elif isinstance(row, GpuLoad):
            self._gpu(f"gpu{row.index}", row.busy_percent, row.memory_used_mib, MIB)
        elif isinstance(row, AmdGpu):
            self._gpu(row.card, row.busy_percent, row.vram_used, 1)

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

    def _gpu(self, name: str, busy: float | None, memory: float | None, unit: int) -> None:
        told = {"gpu_util": busy, "gpu_memory": None if memory is None else memory * unit}
        self.devices[name] = {column: float(value) for column, value in told.items() if value is not None}

    def _flows(self, source: str, rows: Sequence[Facts], ts: int, mono: int) -> dict[str, Values]:
        """What each device that counts moved since its beat before."""
        flow, moved = FLOWS[source], dict[str, Values]()
        by_name = {getattr(row, flow.name): row for row in rows}
        names = (source, *by_name)
        if names not in self._counted:
            if len(self._counted) > MOST_LISTS:
                self._counted.clear()
            self._counted[names] = flow.counted(list(by_name), [self._facts])
        for name in self._counted[names]:
            before, seconds = self._since(source, name, by_name[name], ts, mono)
            if before is None:
                continue
            for column, field in flow.fields.items():
                now, then = getattr(by_name[name], field), getattr(before, field)
                risen = None if now is None or then is None else rise(now, then)
                if risen is not None:
                    moved.setdefault(name, {})[column] = flow.unit * risen / seconds
        return moved

    def _step_of(self, source: str) -> float:
        """The seconds from one sample of a source to the next."""
        return max(self.least, self.step * self._beats[source])

    def _since(self, source: str, key: str, row: Any, ts: int, mono: int) -> tuple[Any, float]:
        """The same row at its beat before and the seconds since; None where the two do not belong together."""
        ts_before, mono_before, before = self._before.get((source, key), (ts, mono, None))
        self._before[source, key] = (ts, mono, row)
        seconds = (mono - mono_before) / 1e9
        together = steady(seconds, (ts - ts_before) / 1e9, self._step_of(source))
        return (before if together else None), seconds
