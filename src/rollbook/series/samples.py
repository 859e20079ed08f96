"""From a journal's frames to samples: the text of each source at each beat, on the collector's clock.

A sample frame holds, for each source, five LEB128 numbers (place in the plan, flags, start in µs after the frame's
clock, duration in µs, length) and the deflated pages. Each source is one deflate stream, begun anew at key beats; a
source whose stream is broken gives nothing until then, never a wrong text. Of sources that read the same files only the
first has data.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator

import msgspec

from rollbook.collect.plan import LARGEST, Plan
from rollbook.collect.readings import read_frame
from rollbook.errors import ProtocolError, RecordError
from rollbook.series.journal import frame_of, segments
from rollbook.series.survey import HostLog, Survey
from rollbook.series.varint import read_varint

__all__ = ["HostSamples", "Sample", "Segments", "Unpacker", "entry_head"]

KEY, UNCHANGED, SAME = 1, 2, 4
FLUSHED = b"\x00\x00\xff\xff"  # the end of every sync flush, which the agent leaves out
MOST_OPEN = 64  # segments
LATEST_START = 1 << 40  # µs after the beat


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One source at one beat: its pages as they came, or None where they are those of the sample before."""

    source: int
    ts: int
    mono: int
    body: bytes | None


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
            self._fds[number] = os.open(self._paths[number], os.O_RDONLY | os.O_CLOEXEC)
        data = os.pread(self._fds[number], size, place & 0xFFFFFFFF)
        if len(data) != size:
            raise RecordError("the journal became shorter while it was read")
        return data

    def close(self) -> None:
        """Close all."""
        for fd in self._fds.values():
            os.close(fd)


class Unpacker:
    """Samples out of the sample frames of one host, in their order. `lost` counts those that could not be inflated."""

    def __init__(self, plan: Plan) -> None:
        self._sources = len(plan.sources)
        self._inflaters: dict[int, zlib._Decompress] = {}
        self.lost = 0

    def restart(self) -> None:
        """Frames are missing, or a connection begins: what follows waits for the next key beat."""
        self._inflaters.clear()

    def beat(self, payload: bytes, ts: int, mono: int) -> Iterator[Sample]:
        """The samples of one frame; raises `ProtocolError` where it is none."""
        body: bytes | None = None
        at, whole = 0, False
        while at < len(payload):
            source, flags, start, length, at = entry_head(payload, at)
            data = payload[at : at + length]
            at += length
            if len(data) != length or start > LATEST_START or source >= self._sources:
                raise ProtocolError("a sample that is cut, or of no source")
            if not flags & SAME:
                body, whole = self._body(source, flags, data)
            if whole:
                yield Sample(source, ts, mono + start * 1000, body)
            else:
                self.lost += 1

    def _body(self, source: int, flags: int, data: bytes) -> tuple[bytes | None, bool]:
        """The pages, None for those of the sample before, and whether there is any knowing them."""
        if flags & KEY:
            self._inflaters[source] = zlib.decompressobj(-15)
        inflater = self._inflaters.get(source)
        if inflater is None or flags & UNCHANGED:
            return None, inflater is not None
        try:
            body = inflater.decompress(data + FLUSHED, LARGEST)
            if not inflater.unconsumed_tail:
                return body, True
        except zlib.error:
            pass
        del self._inflaters[source]
        return None, False


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


def entry_head(payload: bytes, at: int) -> tuple[int, int, int, int, int]:
    """Source, flags, start and length of the next source in a sample, and where its data begins."""
    try:
        source, at = read_varint(payload, at) if payload[at] > 127 else (payload[at], at + 1)
        flags, at = read_varint(payload, at) if payload[at] > 127 else (payload[at], at + 1)
        start, at = read_varint(payload, at) if payload[at] > 127 else (payload[at], at + 1)
        _, at = read_varint(payload, at) if payload[at] > 127 else (0, at + 1)
        length, at = read_varint(payload, at) if payload[at] > 127 else (payload[at], at + 1)
    except IndexError:
        raise ProtocolError("a sample that is cut") from None
    return source, flags, start, length, at
