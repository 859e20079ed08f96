"""The samples of one host from a journal, in order of time."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rollbook.errors import ProtocolError, RecordError
from rollbook.journal.entries import frame_of, segment_files
from rollbook.journal.survey import HostJournal, Survey
from rollbook.protocol.readings import read_frame
from rollbook.protocol.samples import Sample, Unpacker

__all__ = ["ALL", "HostSamples", "Segments"]

ALL = -1
"""In place of a source: a frame cannot be read at all, it may have had every source of the host."""
MAX_OPEN = 64  # segments
INFLATED, INFLATED_PER_FRAME = 256 << 20, 2 << 20
"""Bytes of text that one host may send, at the start and for each of its frames. Deflate packs a thousand bytes into
one, so that without a limit a host could fill hours of the collector's time with a few megabytes. The text of a large
machine has less than 1 MiB at a beat."""


class Segments:
    """The segments of a journal, for reading single entries; only some of them are open at a time."""

    def __init__(self, survey: Survey) -> None:
        self._paths = segment_files(survey.directory)
        self._fds: dict[int, int] = {}

    def payload(self, place: int, size: int) -> bytes:
        """The payload of the entry at that place."""
        number = place >> 32
        if number not in self._fds:
            if len(self._fds) >= MAX_OPEN:
                os.close(self._fds.pop(next(iter(self._fds))))
            self._fds[number] = os.open(self._paths[number], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        data = os.pread(self._fds[number], size, place & 0xFFFFFFFF)
        if len(data) != size:
            raise RecordError("the journal was truncated while it was being read")
        return data

    def close(self) -> None:
        """Close all."""
        for fd in self._fds.values():
            os.close(fd)


class HostSamples:
    """Iterates over the samples of one host.

    `connection` is the number of the connection of the current sample. `undecodable` are samples that could not be
    decoded since the list was last cleared: place of the source in the plan, or `ALL`, and time. Once the host has sent
    more text than it may, `over_budget` is set and all later samples count as undecodable. `delays` has, by place in
    the plan, the longest time in µs from the time stamp of a sample to the end of its reading.
    """

    def __init__(self, survey: Survey, host: HostJournal, files: Segments) -> None:
        self._host, self._files, self._plan = host, files, survey.plan
        self._unpacker = Unpacker(survey.plan)
        self._unpacker.on_lost = lambda source, ts: self.undecodable.append((source, ts))
        self.connection = 0
        self.over_budget = False
        self.undecodable: list[tuple[int, int]] = []
        self.delays = self._unpacker.delays

    def __iter__(self) -> Iterator[Sample]:
        host, unpacker = self._host, self._unpacker
        budget = INFLATED + INFLATED_PER_FRAME * len(host.places)
        begins = iter([*host.connections, len(host.places)])
        begin = next(begins)
        beat, began = -1, 0  # of the stand-in: the time of a sample, and the monotonic clock at its first source
        for index, (place, size, ts) in enumerate(zip(host.places, host.sizes, host.times(), strict=True)):
            while index >= begin:
                self.connection, begin = self.connection + 1, next(begins)
                unpacker.restart()
            if index in host.restarts:
                unpacker.restart()
            if self.over_budget:
                self.undecodable.append((ALL, ts))
                continue
            frame = frame_of(self._files.payload(place, size))
            assert frame is not None
            try:
                if frame.kind == "S":
                    yield from unpacker.beat(frame.payload, ts, frame.mono)
                    self.over_budget = unpacker.inflated > budget
                else:
                    reading = read_frame(frame, self._plan)
                    number = self._plan.sources.index(reading.source)
                    beat, began = ts, began if ts == beat else frame.mono
                    delay = max(0, frame.mono - began) // 1000 + int(reading.seconds * 1e6)
                    self.delays[number] = max(delay, self.delays.get(number, 0))
                    # The stand-in may send a status without pages.
                    body = reading.raw or f"{reading.status} 0 {reading.source.name}\n".encode()
                    yield Sample(number, ts, frame.mono, body)
            except ProtocolError:
                self.undecodable.append((ALL, ts))
                unpacker.restart()
