"""One pass over a journal: the position and time of each host's samples, and the events of the run.

The pass checks every entry and keeps 24 bytes of each sample; the content is read later, host by host.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import functools
from array import array
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import ProtocolError, RecordError
from rollbook.journal.clocks import CollectorClock, Timeline
from rollbook.journal.entries import RUN, Entry
from rollbook.journal.reader import Reader
from rollbook.protocol.beats import Schedule
from rollbook.protocol.frames import LATEST, Frame
from rollbook.protocol.plan import LARGEST, Plan
from rollbook.protocol.readings import read_header
from rollbook.records.hosts import Clock, Int64
from rollbook.records.locate import LOGS
from rollbook.records.record import ClockPoint, Phase
from rollbook.sources import catalogue
from rollbook.sources.base import Source

__all__ = ["HostJournal", "Survey", "plan_of", "schedule_of", "survey"]

MAX_READINGS = 4096  # of facts, per host: a host that repeats readings must not fill the memory
MAX_DOUBLES = 24  # from 0.1 s, more would exceed the longest interval
MAX_CLOCKS = 480  # measurements of a host's clock in the record: four hours of them


MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""Errors of events that no recorder writes: a journal may come from anyone."""


class _Begin(msgspec.Struct):
    """What a `begin` event must have, and the types of what it may have."""

    hosts: list[str]
    sources: list[str]
    started_ns: Int64 | None = None
    interval_ns: Int64 | None = None
    max_samples: Int64 | None = None
    users: dict[str, str | None] = {}
    slots: dict[str, Int64 | None] = {}
    type: str = ""
    stamp: str = ""
    cwd: str = ""
    argv: list[str] = []
    args: dict[str, Any] = {}


class Repeats:
    """Detects entries that are in the journal twice, because a region of a segment was duplicated.

    Entries arrive in order, so only one that is not later than the one before it can be a repetition. Its checksum,
    which covers the time of arrival and the content, is then looked up among all before it: four bytes each.
    """

    def __init__(self) -> None:
        self._arrived, self._checksums = -1, array("I")

    def has(self, entry: Entry) -> bool:
        """Whether this entry came before; adds it if not."""
        if entry.arrived_ns <= self._arrived and entry.crc in self._checksums:
            return True
        self._arrived = entry.arrived_ns
        self._checksums.append(entry.crc)
        return False


@dataclasses.dataclass
class HostJournal:
    """The journal of one host. `places`, `sizes` and `walls` have an item for each frame with samples.

    `restarts` are the indices of samples before which frames are missing, `connections` those of the first sample of a
    connection: deflate streams restart at both. `boot_ids` has an item for each connection, "" if the hello is damaged.
    `thinned` are samples before which the agent left out some. `missing_at_end` counts the frames that are missing
    after the last sample, `ended` is whether the last connection has its end frame. `clocks` has four numbers for
    each measurement of its clock: time, offset, bound, round trip. `refused` counts readings of facts that the parser
    rejected, so that only the journal has their text; it is set when facts have been read.
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
    ended: bool = False
    readings: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    lost_frames: int = 0
    turned_away: list[str] = dataclasses.field(default_factory=list)
    refused: int = 0
    _greeted: bool = False
    _seq: int = -1
    _missing: int | None = None  # frames before the next sample; None if no frame is missing
    _sample_seq: int = -1
    _round: tuple[int, int] = (-1, 0)
    _times: array[int] | None = None
    _frames: Repeats = dataclasses.field(default_factory=Repeats)
    _events: Repeats = dataclasses.field(default_factory=Repeats)

    def times(self) -> array[int]:
        """The times of the samples on the collector's clock; call it after the whole journal was read."""
        if self._times is None:
            self._times = self.timeline.times(self.walls, self.connections)
        return self._times

    def clock_points(self) -> list[ClockPoint]:
        """The measurements of its clock; of a long run the first, the last and the most precise ones between."""
        points = [
            ClockPoint(at_ns, Clock(offset, bound, round_trip))
            for at_ns, offset, bound, round_trip in zip(*[iter(self.clocks)] * 4, strict=True)
        ]
        between = points[1:-1]
        share = max(1, -(-len(between) // (MAX_CLOCKS - 2)))
        groups = (between[at : at + share] for at in range(0, len(between), share))
        best = [min(group, key=lambda point: point.clock.bound_ns) for group in groups]
        return points[:1] + best + points[1:][-1:]

    @property
    def boots(self) -> list[str]:
        """The distinct boot ids of the connections."""
        return [boot_id for boot_id in dict.fromkeys(self.boot_ids) if boot_id]

    def boot_at(self, index: int) -> str:
        """The boot id of the connection of a sample; "" if unknown."""
        number = bisect.bisect_right(self.connections, index)
        return self.boot_ids[number - 1] if number else ""

    @property
    def uses_stand_in(self) -> bool:
        """Whether the shell stand-in sampled the host; it reads all sampled sources every time."""
        return any(hello.get("kind") == "sh" for hello in self.hellos)

    @property
    def missing_at_end(self) -> int:
        """The number of frames that are missing after the last sample of the last connection.

        Unknown for the stand-in, and then 0: it numbers the frames of its two processes separately.
        """
        return 0 if self.uses_stand_in else self._missing or 0

    def is_repeated(self, entry: Entry) -> bool:
        """Whether the journal has this entry twice; every entry must be asked for once, in order."""
        return (self._events if entry.payload[:1] == b"J" else self._frames).has(entry)

    def event(self, event: dict[str, Any], at_ns: int, clock: CollectorClock) -> None:
        """Add an event of the collector about this host; `at_ns` is on the steady clock of the collector."""
        match event.get("event"):
            case "clock":
                offset, bound, trip = (_number(event[name]) for name in ("offset_ns", "bound_ns", "round_trip_ns"))
                if self.timeline.measured(at_ns, clock.steady(offset)):
                    self.clocks.extend((at_ns, clock.steady(offset), bound, trip))
            case "connected":
                if not self._greeted:  # the hello frame is damaged
                    self._connect()
                self.hellos.append({str(name): str(value) for name, value in event["hello"].items()})
                self.boot_ids[-1] = self.hellos[-1].get("boot_id", "")
                self.method, self._greeted = str(event.get("method", "")), False
            case "busy":
                self.turned_away.append(str(event.get("reason", "")))
            case "lost":
                self.losses.append({**event, "at_ns": at_ns})

    def frame(self, frame: Frame, entry: Entry, arrived_ns: int, plan: Plan) -> None:
        """Add a frame of this host; `arrived_ns` is on the steady clock of the collector."""
        if frame.mono | frame.wall > LATEST:
            return
        if frame.kind == "H":
            self._connect()
            self._greeted = True
        steady = self.timeline.steady(frame.mono, frame.wall, arrived_ns)
        place, size = entry.segment << 32 | entry.offset, len(entry.payload)
        self._follow(frame)
        if frame.kind == "S":
            # Its deflate streams need every sample before it; any missing frame may have been one.
            if self._missing is not None:
                self.restarts.add(len(self.places))
                self.lost_frames += self._missing
                self._missing = None
            self._sample_seq = frame.seq
            self._sample(place, size, steady)
        elif frame.kind == "G":
            self.thinned.add(len(self.places))
        elif frame.kind == "E":
            self.goodbye, self.ended = frame.payload, True
        elif frame.kind in "RZ":
            number, phase = _header(frame)
            if phase == "sample" and number < len(plan.sources):
                # The stand-in sends a frame for each source; all have the time of the first.
                last, taken = self._round
                taken = steady if number <= last or last < 0 else taken
                self._round = (number, taken)
                self._sample(place, size, taken)
            elif len(self.readings) < MAX_READINGS:
                self.readings.append((place, size))

    def _follow(self, frame: Frame) -> None:
        """Count the frames that are missing before a frame of any kind, for the next sample."""
        if frame.seq <= self._seq and frame.kind != "S":
            if self._missing and frame.seq > self._sample_seq:  # it was missing and was sent again
                self._missing = self._missing - 1 or None
            return
        if self._seq >= 0 and frame.seq != self._seq + 1:
            self._missing = (self._missing or 0) + max(0, frame.seq - self._seq - 1)
        self._seq = frame.seq

    def _connect(self) -> None:
        self.lost_frames += self.missing_at_end
        self.timeline.connect()
        self.connections.append(len(self.places))
        self.boot_ids.append("")
        self._seq, self._missing, self._round, self._sample_seq, self.ended = -1, None, (-1, 0), -1, False

    def _sample(self, place: int, size: int, wall: int) -> None:
        self.places.append(place)
        self.sizes.append(size)
        self.walls.append(wall)


@dataclasses.dataclass
class Survey:
    """The content of a journal. `command` has started_ns, ended_ns and code of the wrapped command, as far as known.

    `ended` is whether the recorder ended normally, `end_facts` whether end facts were requested (None: unknown).
    `truncated_logs` has the reason for each log of the command that is incomplete.
    `ready_ns` is the time at which every host had sent its start facts or failed. `damaged` counts unreadable entries,
    `missing` segments before the last one.
    Times are on the collector's clock as it ran at the start; `clock` has its steps.
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
    truncated_logs: dict[str, str] = dataclasses.field(default_factory=dict)
    ready_ns: int = 0
    damaged: int = 0
    missing: int = 0
    clock: CollectorClock = dataclasses.field(default_factory=CollectorClock)

    def event(self, event: dict[str, Any], at_ns: int) -> None:
        """Add an event of the collector about the run."""
        match event.get("event"):
            case "phase":
                self.marks.append((at_ns, str(event.get("name", ""))))
            case "command":
                self.command[f"{event.get('state')}_ns"] = at_ns
                if event.get("state") == "ended" and "code" in event:
                    self.command["code"] = _number(event["code"])
            case "ready":
                self.ready_ns = at_ns
            case "log":
                if (name := str(event.get("name"))) in LOGS:
                    self.truncated_logs[name] = str(event.get("reason"))[:200]
            case "end facts":
                self.end_facts = bool(event.get("wanted"))
            case "end":
                self.ended = True

    @property
    def phases(self) -> list[Phase]:
        """The phases of the run: each ends where the next begins, the last with the journal."""
        edges = [at for at, _ in self.marks[1:]] + [self.ended_ns]
        return [Phase(name, at, end) for (at, name), end in zip(self.marks, edges, strict=False)]

    @functools.cached_property
    def sampled_from(self) -> int | None:
        """The time of the first sample of any host, with the same exception as for the last; None without samples."""
        firsts = [host.times()[0] for host in self.hosts if host.places]
        return min((first for first in firsts if first >= self.started_ns), default=None)

    @functools.cached_property
    def sampled_until(self) -> int:
        """The time of the last sample of any host; hosts whose clock is wrong and was not measured do not count."""
        lasts = [host.times()[-1] for host in self.hosts if host.places]
        return max((last for last in lasts if last <= self.ended_ns), default=self.ended_ns)

    @functools.cached_property
    def plan(self) -> Plan:
        """The plan of the run."""
        return plan_of(self.begin)

    @functools.cached_property
    def schedule(self) -> Schedule:
        """The intervals of the run."""
        return schedule_of(self.begin)

    @property
    def interval_ns(self) -> int:
        """The interval at the last sample; 0 if nothing was sampled."""
        return self.schedule.at(self.sampled_until) if self.schedule.doubles else self.schedule.interval_ns


def plan_of(begin: dict[str, Any]) -> Plan:
    """The plan of a `begin` event; a source that this version does not have keeps its place, without data."""
    return Plan(
        tuple(
            catalogue.find(name) or Source((), lambda _: None, None, limit=LARGEST, name=name)
            for name in begin["sources"]
        )
    )


def schedule_of(begin: dict[str, Any]) -> Schedule:
    """The intervals of a `begin` event; a journal may come from anyone, so values that are not times are left out."""
    doubles = begin.get("doubles_ns")
    found = [at for at in doubles if isinstance(at, int)] if isinstance(doubles, list) else []
    return Schedule(int(begin.get("interval_ns") or 0), tuple(sorted(found)[:MAX_DOUBLES]))


def survey(directory: Path) -> Survey:
    """Read a whole journal once; raises `RecordError` if it cannot be read."""
    begin, at_ns = _begin(directory)
    began = int(begin.get("started_ns") or at_ns)
    found = Survey(directory, begin, [HostJournal(str(name)) for name in begin["hosts"]], began, began)
    reader, plan, clock, run = Reader(directory), found.plan, found.clock, Repeats()
    for entry in reader:
        if entry.arrived_ns > LATEST:
            reader.damaged += 1
            continue
        host = found.hosts[entry.host] if entry.host < len(found.hosts) else None
        if host.is_repeated(entry) if host else entry.host == RUN and run.has(entry):
            continue
        event = entry.event
        if event is not None and isinstance(boot_ns := event.get("boot_ns"), int) and abs(boot_ns) <= LATEST:
            clock.observe(entry.arrived_ns, boot_ns)
        at_ns = clock.steady(entry.arrived_ns)
        found.ended_ns = max(found.ended_ns, at_ns)
        try:
            if event is not None and entry.host == RUN:
                found.event(event, at_ns)
            elif event is not None and host is not None:
                host.event(event, at_ns, clock)
            elif host is not None and (frame := entry.frame) is not None:
                host.frame(frame, entry, at_ns, plan)
        except MALFORMED:
            reader.damaged += 1
    found.damaged = reader.damaged
    found.missing = int(reader.paths[-1].stem) - len(reader.paths)  # they are numbered from 1
    return found


def _begin(directory: Path) -> tuple[dict[str, Any], int]:
    """The first readable `begin` event and its time; without one, host numbers have no meaning."""
    for entry in Reader(directory):
        event = entry.event
        if event is not None and event.get("event") == "begin" and entry.arrived_ns <= LATEST:
            with contextlib.suppress(msgspec.ValidationError):
                msgspec.convert(event, _Begin)
                return event, entry.arrived_ns
    raise RecordError(f"{directory} has no journal that can be read")


def _number(value: Any) -> int:
    """An integer that fits into 64 bits, even after it is added to another; raises one of `MALFORMED`."""
    number = int(value)
    if abs(number) > LATEST:
        raise ValueError(f"{number} is out of range")
    return number


def _header(frame: Frame) -> tuple[int, str]:
    """Source and phase of a reading; an empty phase if its header is malformed."""
    try:
        header = read_header(frame)
    except ProtocolError:
        return 0, ""
    return header.source, header.phase
