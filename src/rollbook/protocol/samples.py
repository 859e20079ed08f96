"""Decodes sample frames: the text of each source at each beat.

A sample frame holds, for each source, five LEB128 numbers (index in the plan, flags, start in µs after the frame's
clock, duration in µs, length) and the deflated pages. Each source is one deflate stream, which restarts at key frames.
A source with a broken stream yields nothing until then, never a wrong text. Of sources that read the same files only
the first has data.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import msgspec

from rollbook.errors import ProtocolError
from rollbook.protocol.plan import Plan
from rollbook.protocol.varint import read_varint

__all__ = ["MAX_INFLATED", "Sample", "Unpacker", "entry_head", "inflated_size"]

KEY, UNCHANGED, SAME = 1, 2, 4
FLUSH_END = b"\x00\x00\xff\xff"  # the end of every sync flush, which the agent omits
LATEST_END = 1 << 40  # µs after the beat
MAX_INFLATED = 1032
"""No deflated byte inflates to more bytes than this."""
WINDOW = bytes(1 << 15)


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One source at one beat: its pages as sent, or None if they equal those of its previous sample."""

    source: int
    ts: int
    mono: int
    body: bytes | None


class Unpacker:
    """Decodes the sample frames of one host, in order.

    `on_lost` is called with the source and time of each sample that could not be inflated, `inflated` counts the bytes
    of all others. A source has at most one sample in a frame, and no more text than its limit allows. `delays` has, by
    source, the longest time in µs from the clock of a frame to the end of the reading.
    """

    def __init__(self, plan: Plan) -> None:
        self._limits, self._count = plan.size_limits, len(plan.sources)
        self._inflaters: dict[int, zlib._Decompress] = {}
        self.inflated = 0  # bytes
        self.delays: dict[int, int] = {}
        self.on_lost: Callable[[int, int], None] = lambda _source, _ts: None

    def restart(self) -> None:
        """Frames are missing, or a connection starts: skip samples until the next key frame."""
        self._inflaters.clear()

    def beat(self, payload: bytes, ts: int, mono: int) -> Iterator[Sample]:
        """The samples of one frame; raises `ProtocolError` if it is malformed."""
        body: bytes | None = None
        at, decoded, seen = 0, False, 0
        while at < len(payload):
            source, flags, start, took, length, at = entry_head(payload, at)
            data = payload[at : at + length]
            at += length
            if len(data) != length or start + took > LATEST_END or source >= self._count or seen >> source & 1:
                raise ProtocolError("a sample is truncated, or its source is repeated or not in the plan")
            seen |= 1 << source
            if not flags & SAME:
                body, decoded = self._body(source, flags, data)
            if decoded:
                if start + took > self.delays.get(source, 0):
                    self.delays[source] = start + took
                yield Sample(source, ts, mono + start * 1000, body)
            else:
                self.on_lost(source, ts)

    def _body(self, source: int, flags: int, data: bytes) -> tuple[bytes | None, bool]:
        """The pages (None: unchanged), and whether they could be decoded."""
        if flags & KEY:
            self._inflaters[source] = zlib.decompressobj(-15)
        inflater = self._inflaters.get(source)
        if inflater is None or flags & UNCHANGED:
            return None, inflater is not None
        try:
            body = inflater.decompress(data + FLUSH_END, self._limits[source])
            self.inflated += len(body)
            if not inflater.unconsumed_tail:
                return body, True
        except zlib.error:
            pass
        del self._inflaters[source]
        return None, False


def inflated_size(payload: bytes, limit: int) -> int:
    """The size of all pages of a sample frame, without knowing the frames before it; stops above `limit`.

    Raises `ProtocolError` if the frame is malformed. The text is not needed, so any window will do.
    """
    size = at = 0
    while at < len(payload) and size <= limit:
        _, _, _, _, length, at = entry_head(payload, at)
        data = payload[at : at + length] + FLUSH_END
        at += length
        try:
            size += len(zlib.decompressobj(-15, WINDOW).decompress(data, limit + 1 - size))
        except zlib.error as error:
            raise ProtocolError(f"a sample cannot be inflated: {error}") from error
    return size


def entry_head(payload: bytes, at: int) -> tuple[int, int, int, int, int, int]:
    """Source, flags, start, duration and length of the entry at `at`, and where its data starts."""
    try:
        source, at = read_varint(payload, at) if payload[at] > 127 else (payload[at], at + 1)
        flags, at = read_varint(payload, at) if payload[at] > 127 else (payload[at], at + 1)
        start, at = read_varint(payload, at) if payload[at] > 127 else (payload[at], at + 1)
        took, at = read_varint(payload, at) if payload[at] > 127 else (payload[at], at + 1)
        length, at = read_varint(payload, at) if payload[at] > 127 else (payload[at], at + 1)
    except IndexError:
        raise ProtocolError("a sample is truncated") from None
    return source, flags, start, took, length, at
