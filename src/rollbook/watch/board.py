"""The board: the current state and metrics of every host, their recent history, and which hosts differ from the others.

A host is measured against the median of all hosts, in units of their median absolute deviation, with the same
thresholds as for the outliers of a record. Only a deviation that lasts counts: the median over a few beats.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Literal, Self

from rollbook.errors import HostStatus
from rollbook.hosts import natural
from rollbook.metrics import catalogue
from rollbook.metrics.live import Values
from rollbook.metrics.outliers import DEVIATIONS, FEWEST_ROWS, median_and_scale
from rollbook.protocol.beats import LONGEST_STEP

__all__ = ["FIRST", "HISTORY", "LASTING", "Board", "HostView", "State"]

State = Literal["connecting", "up", "back", "silent", "lost"]
DEFAULT_TREND = "cpu_busy"  # while no host is unusual
FIRST = ("cpu_busy", "disk_read", "disk_write", "net_rx", "net_tx", "mem_available")
"""The first metrics of the table: those that must be seen on a narrow terminal, too."""
HISTORY = 60  # beats
LASTING = 5
BACK_FOR = 30 * 10**9  # nanoseconds for which a host that returned is shown as such


@dataclasses.dataclass
class HostView:
    """One host. `unusual` is its largest deviation from the others, `unusual_metric` the metric that has it."""

    name: str
    state: State = "connecting"
    reason: str = ""
    status: HostStatus = "complete"
    method: str = ""
    beats: int = 0
    drops: int = 0
    beat_ns: int = 0
    since_ns: int = 0
    values: Values = dataclasses.field(default_factory=dict)
    devices: dict[str, Values] = dataclasses.field(default_factory=dict)
    history: dict[str, deque[float]] = dataclasses.field(default_factory=dict)
    unusual: float = 0.0
    unusual_metric: str = ""
    deviations: dict[str, deque[float]] = dataclasses.field(default_factory=dict)

    @property
    def is_up(self) -> bool:
        """Whether its values are current."""
        return self.state in ("up", "back")

    def frozen(self) -> Self:
        """A copy that later beats do not change."""
        return dataclasses.replace(self, history=_copied(self.history), deviations=_copied(self.deviations))


class Board:
    """Hosts by name, in the order given. A feed reports what happens to them, and calls `tick` once per interval.

    `metrics` are those of the live view, `columns` the names of those that are shown now. `most_unusual` is the metric
    in which the most unusual host differs. `slower` has the seconds between two beats of hosts that need more than
    the interval.
    """

    def __init__(self, names: Sequence[str], interval: float) -> None:
        watched, parts = catalogue.watched(), catalogue.parts()
        held = [name for name, metric in watched.items() if parts[metric.part].is_held]
        self.metrics = {name: watched[name] for name in (*FIRST, *held, *watched)}
        self.hosts = {name: HostView(name) for name in names}
        self.interval, self.now_ns, self.ticks = interval, 0, 0
        self.slower: dict[str, float] = {}
        self.medians: Values = {}
        # Metrics that only some hosts have get a column when a host has them.
        self.columns = [name for name in self.metrics if name not in held]
        self.most_unusual = DEFAULT_TREND
        self.peaks: dict[str, deque[float]] = {name: deque(maxlen=HISTORY) for name in self.metrics}

    def clear(self) -> None:
        """Forget everything about all hosts but their names."""
        self.hosts = {name: HostView(name) for name in self.hosts}
        self.medians.clear()
        for peaks in self.peaks.values():
            peaks.clear()

    def frozen(self) -> Self:
        """A copy that later beats do not change."""
        now = copy.copy(self)
        now.hosts = {name: host.frozen() for name, host in self.hosts.items()}
        now.medians, now.peaks = dict(self.medians), _copied(self.peaks)
        return now

    def top(self, column: str) -> float:
        """The greatest value of a metric in the history of any host."""
        return max(self.peaks[column], default=0.0)

    def beat(self, name: str, at_ns: int, values: Values, devices: dict[str, Values] | None = None) -> None:
        """The values of a host at a beat."""
        host = self.hosts[name]
        host.values, host.devices, host.beat_ns = values, devices or {}, at_ns
        host.beats += 1
        if not values.keys() <= set(self.columns):
            self.columns = [column for column in self.metrics if column in self.columns or column in values]
        if not host.is_up:
            self._set_state(host, "back" if host.drops else "up", at_ns)

    def lost(self, name: str, status: HostStatus, reason: str, at_ns: int) -> None:
        """A host dropped out, or could not be reached."""
        host = self.hosts[name]
        if host.state != "lost":
            host.drops += host.beats > 0
            self._set_state(host, "lost", at_ns)
        host.status, host.reason, host.values, host.devices = status, reason, {}, {}

    def tick(self, now_ns: int, *, compare: bool = True) -> None:
        """End an interval: hosts without a recent beat become silent, values become history, hosts are compared."""
        self.now_ns = now_ns
        self.ticks += 1
        for host in self.hosts.values():
            step = self.slower.get(host.name, self.interval)
            if host.is_up and now_ns - host.beat_ns > LONGEST_STEP * step * 1e9:
                host.values, host.devices = {}, {}
                host.state, host.since_ns = "silent", host.beat_ns
            elif host.state == "back" and now_ns - host.since_ns > BACK_FOR:
                host.state = "up"
            for column in self.metrics:
                host.history.setdefault(column, deque(maxlen=HISTORY)).append(host.values.get(column, math.nan))
        for column, peaks in self.peaks.items():
            peaks.append(max((host.values.get(column, 0.0) for host in self.hosts.values()), default=0.0))
        if compare:
            self._compare()

    def ordered(self, column: str = "unusual", *, reverse: bool = False) -> list[HostView]:
        """The hosts, most unusual first, by name, or by a metric, greatest first.

        Hosts without a value of that metric come last, even in reverse order.
        """
        hosts = sorted(self.hosts.values(), key=lambda host: natural(host.name))
        if column == "unusual":
            hosts.sort(key=lambda host: (host.is_up, -host.unusual))
        elif column == "state":
            hosts.sort(key=lambda host: (host.is_up, host.state))
        elif column in self.metrics:
            sign = 1 if reverse else -1
            hosts.sort(key=lambda host: (column not in host.values, sign * host.values.get(column, 0.0)))
            return hosts
        return hosts[::-1] if reverse else hosts

    def _set_state(self, host: HostView, state: State, at_ns: int) -> None:
        host.state, host.since_ns, host.reason = state, at_ns, ""

    def _compare(self) -> None:
        for column, metric in self.metrics.items():
            known = [host.values[column] for host in self.hosts.values() if column in host.values]
            self.medians.pop(column, None)
            if known:
                self.medians[column] = median(known)
            if len(known) < FEWEST_ROWS or not metric.compared:  # no host is unusual among so few
                for host in self.hosts.values():
                    host.deviations.pop(column, None)
                continue
            middle, scale = median_and_scale(known, metric.threshold)
            for host in self.hosts.values():
                off = (host.values.get(column, middle) - middle) / scale
                harmless = off < 0 and metric.threshold.direction == "high"
                host.deviations.setdefault(column, deque(maxlen=LASTING)).append(0.0 if harmless else abs(off))
        for host in self.hosts.values():
            lasting = {column: median(recent) for column, recent in host.deviations.items()}
            host.unusual_metric = max(lasting, key=lambda column: lasting[column], default="")
            host.unusual = lasting.get(host.unusual_metric, 0.0)
        most = max(self.hosts.values(), key=lambda host: host.unusual)
        self.most_unusual = most.unusual_metric if most.unusual >= DEVIATIONS else DEFAULT_TREND


def _copied(lines: dict[str, deque[float]]) -> dict[str, deque[float]]:
    return {column: line.copy() for column, line in lines.items()}
