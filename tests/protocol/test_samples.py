"""Samples in frames: undecodable data is reported by source, and affects no other source."""

from __future__ import annotations

import zlib

import pytest

from rollbook.errors import ProtocolError
from rollbook.protocol import readings
from rollbook.protocol.plan import Plan
from rollbook.protocol.samples import Unpacker
from rollbook.protocol.varint import put_varint
from rollbook.sources import catalogue

PLAN = Plan((catalogue.source("loadavg"), catalogue.source("meminfo")))


class Stream:
    """The deflate stream of one source, as in the agent."""

    def __init__(self, source: int) -> None:
        self._source, self._stream = source, zlib.compressobj(4, zlib.DEFLATED, -15)
        self._flags = 1

    def entry(self, text: bytes) -> bytes:
        """The next entry in a sample frame."""
        data = (self._stream.compress(text) + self._stream.flush(zlib.Z_SYNC_FLUSH))[:-4]
        head = bytearray()
        for value in (self._source, self._flags, 0, 0, len(data)):
            put_varint(head, value)
        self._flags = 0
        return bytes(head) + data


def test_losses_are_reported_by_source() -> None:
    """A source with a damaged stream is lost until its next key frame; the other one is decoded on every beat."""
    unpacker, lost = Unpacker(PLAN), list[tuple[int, int]]()
    unpacker.on_lost = lambda source, ts: lost.append((source, ts))
    streams, decoded = [Stream(0), Stream(1)], []
    for ts in range(5):
        if ts == 4:
            streams[0] = Stream(0)
        first, second = (stream.entry(b"beat %d" % ts) for stream in streams)
        if ts == 2:
            first = first[:5] + bytes(byte ^ 0xFF for byte in first[5:])
        decoded += [(sample.source, sample.ts, sample.body) for sample in unpacker.beat(first + second, ts, 0)]
    assert lost == [(0, 2), (0, 3)]
    assert decoded == [(n, ts, b"beat %d" % ts) for ts in range(5) for n in (0, 1) if (n, ts) not in lost]


def test_number_of_pages_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes could inflate to a million empty pages, each of which takes time to parse."""
    monkeypatch.setattr(readings, "MAX_PAGES", 3)
    assert len(readings.split_pages(b"ok 0 x\n" * 3)) == 3
    with pytest.raises(ProtocolError, match="too many"):
        readings.split_pages(b"ok 0 x\n" * 4)


def test_lost_frame_without_key_frames() -> None:
    """After a lost frame, every sample before the next key frame is reported as lost and not decoded."""
    unpacker, lost = Unpacker(PLAN), list[tuple[int, int]]()
    unpacker.on_lost = lambda source, ts: lost.append((source, ts))
    streams = [Stream(0), Stream(1)]
    frames = [b"".join(stream.entry(b"beat %d" % ts) for stream in streams) for ts in range(3)]
    assert len(list(unpacker.beat(frames[0], 0, 0))) == 2
    unpacker.restart()
    assert not list(unpacker.beat(frames[2], 2, 0))
    assert lost == [(0, 2), (1, 2)]
