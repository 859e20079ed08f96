"""One pass over a journal: where each host's samples lie, when they were taken, and how the run went.

The pass checks every entry, and keeps twenty bytes of each sample; their content is read later, host by host.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
from array import array
from pathlib import Path
from typing import Any

from rollbook.errors import ProtocolError, RecordError
from rollbook.journal.clocks import Timeline
from rollbook.journal.entries import RUN, Entry
from rollbook.journal.reader import Reader
from rollbook.protocol.frames import LATEST, Frame
from rollbook.protocol.plan import LARGEST, Plan
from rollbook.protocol.readings import read_header
from rollbook.records.hosts import Clock
from rollbook.records.record import ClockPoint, Phase
from rollbook.sources import catalogue
from rollbook.sources.base import Source

__all__ = ["HostJournal", "Survey", "survey"]

MOST_READINGS = 4096  # of facts, per host: a host that repeats itself must not fill our memory
MOST_CLOCKS = 480  # measurements of a host's clock that are told one by one: four hours of them


@dataclasses.dataclass
class HostJournal:
    """What the journal has of one host. `places`, `sizes` and `walls` have an item for each frame with samples.

    `restarts` are the samples before which frames are missing, `connections` those that come first on a connection:
    deflate streams begin anew at both. `boot_ids` has an item for each connection, "" where the greeting failed.
    `thinned` are samples before which the agent left out some. `clocks` has four numbers for each measurement of its
    clock: when, offset, bound, round trip. `refused` counts the readings of facts whose text is here alone, because
    nothing could be made of it; known when facts have been read.
    """

    name: str
    places: array[int] = dataclasses.field(default_factory=lambda: array("Q"))
    sizes: array[int] = dataclasses.field(default_factory=lambda: array("I"))
    walls: array[int] = dataclasses.field(default_factory=lambda: array("q"))
    restarts: set[int] = dataclasses.field(default_factory=set)
    connections: list[int] = dataclasses.field(default_factory=list)
    boot_ids: list[str] = dataclasses.field(default_factory=list)
    thinned: set[int] = dataclasses.field(default_factory=set)
    timeline: Timeline = dataclasses.field(default_factory=Timeline)
    clocks: array[int] = dataclasses.field(default_factory=lambda: array("q"))
    hellos: list[dict[str, str]] = dataclasses.field(default_factory=list)
    method: str = ""
    losses: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    goodbye: bytes = b""
    readings: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    lost_frames: int = 0
    turned_away: list[str] = dataclasses.field(default_factory=list)
    refused: int = 0
    _greeted: bool = False
    _seq: int = -1
    _missing: int | None = None  # frames before the next sample; None where it follows the last one
    _round: tuple[int, int] = (-1, 0)
    _times: array[int] | None = None

    def times(self) -> array[int]:
        """When the samples were taken, on the collector's clock; to be asked when all have been read."""
        if self._times is None:
            self._times = self.timeline.times(self.walls, self.connections)
        return self._times

    def clock_points(self) -> list[ClockPoint]:
        """The measurements of its clock; of a long run the first, the last, and of neighbours the one known best."""
        points = [
            ClockPoint(at_ns, Clock(offset, bound, round_trip))
            for at_ns, offset, bound, round_trip in zip(*[iter(self.clocks)] * 4, strict=True)
        ]
        between = points[1:-1]
        share = max(1, -(-len(between) // (MOST_CLOCKS - 2)))
        groups = (between[at : at + share] for at in range(0, len(between), share))
        best = [min(group, key=lambda point: point.clock.bound_ns) for group in groups]
        return points[:1] + best + points[1:][-1:]

    @property
    def boots(self) -> list[str]:
        """The boot ids of the connections, repeated ones once."""
        return [boot_id for boot_id in dict.fromkeys(self.boot_ids) if boot_id]

    def boot_at(self, index: int) -> str:
        """The boot id of the connection that a sample came by; "" where it is not known."""
        number = bisect.bisect_right(self.connections, index)
        return self.boot_ids[number - 1] if number else ""

    def event(self, event: dict[str, Any], at_ns: int) -> None:
        """Take what the collector noted about this host."""
        match event.get("event"):
            case "clock":
                offset = int(event["offset_ns"])
                if self.timeline.measured(at_ns, offset):
                    self.clocks.extend((at_ns, offset, int(event["bound_ns"]), int(event["round_trip_ns"])))
            case "connected":
                if not self._greeted:  # its hello is damaged
                    self._connect()
                self.hellos.append({str(name): str(value) for name, value in event["hello"].items()})
                self.boot_ids[-1] = self.hellos[-1].get("boot_id", "")
                self.method, self._greeted = str(event.get("method", "")), False
            case "busy":
                self.turned_away.append(str(event.get("reason", "")))
            case "lost":
                self.losses.append({**event, "at_ns": at_ns})

    def frame(self, frame: Frame, entry: Entry, plan: Plan) -> None:
        """Take a frame of this host."""
        if frame.mono | frame.wall > LATEST:
            return
        if frame.kind == "H":
            self._connect()
            self._greeted = True
        steady = self.timeline.steady(frame.mono, frame.wall, entry.arrived_ns)
        place, size = entry.segment << 32 | entry.offset, len(entry.payload)
        self._follow(frame)
        if frame.kind == "S":
            # Its deflate streams need every sample before it; any frame that is missing may have been one.
            if self._missing is not None:
                self.restarts.add(len(self.places))
                self.lost_frames += self._missing
                self._missing = None
            self._sample(place, size, steady)
        elif frame.kind == "G":
            self.thinned.add(len(self.places))
        elif frame.kind == "E":
            self.goodbye = frame.payload
        elif frame.kind in "RZ":
            number, phase = _header(frame)
            if phase == "sample" and number < len(plan.sources):
                # The stand-in sends a frame for each source; they are one sample, taken when the first was.
                last, taken = self._round
                taken = steady if number <= last or last < 0 else taken
                self._round = (number, taken)
                self._sample(place, size, taken)
            elif len(self.readings) < MOST_READINGS:
                self.readings.append((place, size))

    def _follow(self, frame: Frame) -> None:
        """Note what is missing before a frame, of whatever kind, until a sample has to know."""
        if frame.seq <= self._seq and frame.kind != "S":
            return  # it was missing, and was sent once more
        if self._seq >= 0 and frame.seq != self._seq + 1:
            self._missing = (self._missing or 0) + max(0, frame.seq - self._seq - 1)
        self._seq = frame.seq

    def _connect(self) -> None:
        self.timeline.connect()
        self.connections.append(len(self.places))
        self.boot_ids.append("")
        self._seq, self._missing, self._round = -1, None, (-1, 0)

    def _sample(self, place: int, size: int, wall: int) -> None:
        self.places.append(place)
        self.sizes.append(size)
        self.walls.append(wall)


@dataclasses.dataclass
class Survey:
    """What a journal holds. `command` is the wrapped command as far as it came: started_ns, ended_ns, code.

    `ended` says whether the recorder came to its own end, `end_facts` whether facts were wanted there (None: nobody
    said); `ready_ns` is when every host had given its start facts or failed to; `damaged` counts entries that could
    not be read.
    """

    directory: Path
    begin: dict[str, Any]
    hosts: list[HostJournal]
    started_ns: int
    ended_ns: int
    marks: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    command: dict[str, int] = dataclasses.field(default_factory=dict)
    ended: bool = False
    end_facts: bool | None = None
    ready_ns: int = 0
    damaged: int = 0

    def event(self, event: dict[str, Any], at_ns: int) -> None:
        """Take what the collector noted about the run."""
        match event.get("event"):
            case "phase":
                self.marks.append((at_ns, str(event.get("name", ""))))
            case "command":
                self.command[f"{event.get('state')}_ns"] = at_ns
                self.command["code"] = int(event.get("code", 0))
            case "ready":
                self.ready_ns = at_ns
            case "end facts":
                self.end_facts = bool(event.get("wanted"))
            case "end":
                self.ended = True

    @property
    def phases(self) -> list[Phase]:
        """The phases of the run: each ends where the next begins, the last with the journal."""
        edges = [at for at, _ in self.marks[1:]] + [self.ended_ns]
        return [Phase(name, at, end) for (at, name), end in zip(self.marks, edges, strict=False)]

    @property
    def sampled_until(self) -> int:
        """When sampling ended for the hosts that were there to the end; a clock that is off and unknown has no say."""
        lasts = [host.times()[-1] for host in self.hosts if host.places]
        return max((last for last in lasts if last <= self.ended_ns), default=self.ended_ns)

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan of the run."""
        return plan_of(self.begin)

    @property
    def interval_ns(self) -> int:
        """The interval asked for; 0 where nothing was sampled."""
        return int(self.begin.get("interval_ns") or 0)


def plan_of(begin: dict[str, Any]) -> Plan:
    """The plan that a `begin` event names; a source that this version does not know has a place in it but no data."""
    return Plan(
        tuple(
            catalogue.find(name) or Source((), lambda _: None, None, limit=LARGEST, name=name)
            for name in begin["sources"]
        )
    )


def survey(directory: Path) -> Survey:
    """Read all of a journal once; raises `RecordError` where there is none."""
    begin, at_ns = _begin(directory)
    began = int(begin.get("started_ns", at_ns))
    found = Survey(directory, begin, [HostJournal(str(name)) for name in begin["hosts"]], began, began)
    reader, plan = Reader(directory), found.plan
    for entry in reader:
        event = entry.event
        found.ended_ns = max(found.ended_ns, entry.arrived_ns)
        if event is not None and entry.host == RUN:
            found.event(event, entry.arrived_ns)
        elif event is not None and entry.host < len(found.hosts):
            found.hosts[entry.host].event(event, entry.arrived_ns)
        elif entry.host < len(found.hosts) and (frame := entry.frame) is not None:
            found.hosts[entry.host].frame(frame, entry, plan)
    found.damaged = reader.damaged
    return found


def _begin(directory: Path) -> tuple[dict[str, Any], int]:
    """The first `begin` that can be read, and when it was written; without one, host numbers mean nothing."""
    for entry in Reader(directory):
        event = entry.event
        if event is not None and event.get("event") == "begin":
            return event, entry.arrived_ns
    raise RecordError(f"{directory} has no journal that can be read")


def _header(frame: Frame) -> tuple[int, str]:
    """Source and phase of a reading; an empty phase if its header is malformed."""
    try:
        header = read_header(frame)
    except ProtocolError:
        return 0, ""
    return header.source, header.phase
