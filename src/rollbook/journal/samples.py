"""The samples of one host out of a journal, in order of time."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rollbook.errors import ProtocolError, RecordError
from rollbook.journal.log import frame_of, segments
from rollbook.journal.survey import HostLog, Survey
from rollbook.protocol.readings import read_frame
from rollbook.protocol.samples import Sample, Unpacker

__all__ = ["HostSamples", "Segments"]

MOST_OPEN = 64  # segments


class Segments:
    """The segments of a journal, for reading single entries; few of them are open at a time."""

    def __init__(self, survey: Survey) -> None:
        self._paths = segments(survey.directory)
        self._fds: dict[int, int] = {}

    def payload(self, place: int, size: int) -> bytes:
        """The payload of the entry at that place."""
        number = place >> 32
        if number not in self._fds:
            if len(self._fds) >= MOST_OPEN:
                os.close(self._fds.pop(next(iter(self._fds))))
            self._fds[number] = os.open(self._paths[number], os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        data = os.pread(self._fds[number], size, place & 0xFFFFFFFF)
        if len(data) != size:
            raise RecordError("the journal became shorter while it was read")
        return data

    def close(self) -> None:
        """Close all."""
        for fd in self._fds.values():
            os.close(fd)


class HostSamples:
    """Iterates over the samples of one host. `lost` counts those that could not be inflated, or had to wait.

    `connection` is the number of the connection that the current sample came by.
    """

    def __init__(self, survey: Survey, host: HostLog, files: Segments) -> None:
        self._host, self._files, self._plan = host, files, survey.plan
        self._unpacker = Unpacker(survey.plan)
        self.connection = 0

    @property
    def lost(self) -> int:
        """How many samples there is nothing of."""
        return self._unpacker.lost

    def __iter__(self) -> Iterator[Sample]:
        host, unpacker = self._host, self._unpacker
        begins = iter([*host.connections, len(host.places)])
        begin = next(begins)
        for index, (place, size, ts) in enumerate(zip(host.places, host.sizes, host.times(), strict=True)):
            while index >= begin:
                self.connection, begin = self.connection + 1, next(begins)
                unpacker.restart()
            if index in host.restarts:
                unpacker.restart()
            frame = frame_of(self._files.payload(place, size))
            assert frame is not None
            try:
                if frame.kind == "S":
                    yield from unpacker.beat(frame.payload, ts, frame.mono)
                else:
                    reading = read_frame(frame, self._plan)
                    number = self._plan.sources.index(reading.source)
                    yield Sample(number, ts, frame.mono, reading.raw)
            except ProtocolError:
                unpacker.lost += 1
                unpacker.restart()
