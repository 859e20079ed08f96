"""The board: what is known of every host now, what it was a while ago, and who is unlike the others.

A host is measured against the median of all, in units of their median absolute deviation, by the same limits as on the
page of a record. How far off it is shows only where that lasts: the median over a few beats counts.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import deque
from collections.abc import Sequence
from typing import Literal, Self

from rollbook.errors import HostStatus
from rollbook.hosts import natural
from rollbook.metrics.catalogue import METRICS, Metric
from rollbook.metrics.grid import median
from rollbook.metrics.live import COLUMNS, RARE, Values
from rollbook.metrics.outliers import DEVIATIONS, FEWEST_ROWS, middle_and_scale
from rollbook.protocol.beats import LONGEST_STEP

__all__ = ["HISTORY", "SHOWN", "Board", "HostView", "State"]

State = Literal["connecting", "up", "back", "silent", "lost"]
_KNOWN = {metric.column: metric for metric in METRICS}
SHOWN: dict[str, Metric] = {column: _KNOWN[column] for column in COLUMNS}
CALM = "cpu_busy"  # the column to look at while nobody is unusual
HISTORY = 60  # beats
LASTING = 5
BACK_FOR = 30 * 10**9  # nanoseconds for which a host that returned is shown as such


@dataclasses.dataclass
class HostView:
    """One host. `unusual` is how many deviations it is off, `odd` the column it is so in."""

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
    odd: str = ""
    offs: dict[str, deque[float]] = dataclasses.field(default_factory=dict)

    @property
    def there(self) -> bool:
        """Whether its values are those of now."""
        return self.state in ("up", "back")

    def still(self) -> Self:
        """The host as it is now, whatever comes."""
        return dataclasses.replace(self, history=_copied(self.history), offs=_copied(self.offs))


class Board:
    """Hosts by name, in the order asked for. Whoever feeds it tells what happens, and `tick`s once per interval.

    `columns` are those to show, `oddest` is the one that the most unusual host is so in, `slower` has the seconds
    between two beats of hosts that may take more than the interval.
    """

    def __init__(self, names: Sequence[str], interval: float) -> None:
        self.hosts = {name: HostView(name) for name in names}
        self.interval, self.now_ns, self.ticks = interval, 0, 0
        self.slower: dict[str, float] = {}
        self.medians: Values = {}
        self.columns = [column for column in SHOWN if column not in RARE]
        self.oddest = CALM
        self.peaks: dict[str, deque[float]] = {column: deque(maxlen=HISTORY) for column in SHOWN}

    def clear(self) -> None:
        """Nothing has been told of any host yet."""
        self.hosts = {name: HostView(name) for name in self.hosts}
        self.medians.clear()
        for peaks in self.peaks.values():
            peaks.clear()

    def still(self) -> Self:
        """The board as it is now, whatever comes."""
        now = copy.copy(self)
        now.hosts = {name: host.still() for name, host in self.hosts.items()}
        now.medians, now.peaks = dict(self.medians), _copied(self.peaks)
        return now

    def top(self, column: str) -> float:
        """The greatest value of a column that any host's history holds."""
        return max(self.peaks[column], default=0.0)

    def beat(self, name: str, at_ns: int, values: Values, devices: dict[str, Values] | None = None) -> None:
        """The values of a host at a beat."""
        host = self.hosts[name]
        host.values, host.devices, host.beat_ns = values, devices or {}, at_ns
        host.beats += 1
        if not values.keys() <= set(self.columns):  # what only some hosts have gets its column when one has it
            self.columns = [column for column in SHOWN if column in self.columns or column in values]
        if not host.there:
            self._turn(host, "back" if host.drops else "up", at_ns)

    def lost(self, name: str, status: HostStatus, reason: str, at_ns: int) -> None:
        """A host dropped out, or could not be reached."""
        host = self.hosts[name]
        if host.state != "lost":
            host.drops += host.beats > 0
            self._turn(host, "lost", at_ns)
        host.status, host.reason, host.values, host.devices = status, reason, {}, {}

    def tick(self, now_ns: int, *, judged: bool = True) -> None:
        """An interval has passed: hosts that said nothing are silent, values become history, all are judged."""
        self.now_ns = now_ns
        self.ticks += 1
        for host in self.hosts.values():
            step = self.slower.get(host.name, self.interval)
            if host.there and now_ns - host.beat_ns > LONGEST_STEP * step * 1e9:
                host.values, host.devices = {}, {}
                host.state, host.since_ns = "silent", host.beat_ns
            elif host.state == "back" and now_ns - host.since_ns > BACK_FOR:
                host.state = "up"
            for column in SHOWN:
                host.history.setdefault(column, deque(maxlen=HISTORY)).append(host.values.get(column, math.nan))
        for column, peaks in self.peaks.items():
            peaks.append(max((host.values.get(column, 0.0) for host in self.hosts.values()), default=0.0))
        if judged:
            self._judge()

    def ordered(self, column: str = "unusual", *, reverse: bool = False) -> list[HostView]:
        """The hosts, most unusual first, by name, or by a column, greatest first.

        Hosts without a value of that column come last, also where all is turned round.
        """
        hosts = sorted(self.hosts.values(), key=lambda host: natural(host.name))
        if column == "unusual":
            hosts.sort(key=lambda host: (host.there, -host.unusual))
        elif column == "state":
            hosts.sort(key=lambda host: (host.there, host.state))
        elif column in SHOWN:
            sign = 1 if reverse else -1
            hosts.sort(key=lambda host: (column not in host.values, sign * host.values.get(column, 0.0)))
            return hosts
        return hosts[::-1] if reverse else hosts

    def _turn(self, host: HostView, state: State, at_ns: int) -> None:
        host.state, host.since_ns, host.reason = state, at_ns, ""

    def _judge(self) -> None:
        for column, metric in SHOWN.items():
            known = sorted(host.values[column] for host in self.hosts.values() if column in host.values)
            self.medians.pop(column, None)
            if known:
                self.medians[column] = median(known)
            if len(known) < FEWEST_ROWS:  # nobody is odd among so few, whoever was before
                for host in self.hosts.values():
                    host.offs.pop(column, None)
                continue
            middle, scale = middle_and_scale(known, metric.judge)
            for host in self.hosts.values():
                off = (host.values.get(column, middle) - middle) / scale
                calm = off < 0 and metric.judge.direction == "high"
                host.offs.setdefault(column, deque(maxlen=LASTING)).append(0.0 if calm else abs(off))
        for host in self.hosts.values():
            offs = {column: median(sorted(lately)) for column, lately in host.offs.items()}
            host.odd = max(offs, key=lambda column: offs[column], default="")
            host.unusual = offs.get(host.odd, 0.0)
        most = max(self.hosts.values(), key=lambda host: host.unusual)
        self.oddest = most.odd if most.unusual >= DEVIATIONS else CALM


def _copied(lines: dict[str, deque[float]]) -> dict[str, deque[float]]:
    return {column: line.copy() for column, line in lines.items()}
