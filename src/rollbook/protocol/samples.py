"""Samples out of sample frames: the text of each source at each beat.

A sample frame holds, for each source, five LEB128 numbers (place in the plan, flags, start in µs after the frame's
clock, duration in µs, length) and the deflated pages. Each source is one deflate stream, begun anew at key beats; a
source whose stream is broken gives nothing until then, never a wrong text. Of sources that read the same files only the
first has data.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

import msgspec

from rollbook.errors import ProtocolError
from rollbook.protocol.plan import Plan
from rollbook.protocol.varint import read_varint

__all__ = ["Sample", "Unpacker", "entry_head"]

KEY, UNCHANGED, SAME = 1, 2, 4
FLUSHED = b"\x00\x00\xff\xff"  # the end of every sync flush, which the agent leaves out
LATEST_START = 1 << 40  # µs after the beat


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One source at one beat: its pages as they came, or None where they are those of the sample before."""

    source: int
    ts: int
    mono: int
    body: bytes | None


class Unpacker:
    """Samples out of the sample frames of one host, in their order.

    `on_lost` is called with the source and time of each sample that could not be inflated, `inflated` counts the bytes
    of all others. A source has at most one sample in a frame, and no more text than its limit allows.
    """

    def __init__(self, plan: Plan) -> None:
        self._limits = plan.rooms
        self._inflaters: dict[int, zlib._Decompress] = {}
        self.inflated = 0  # bytes
        self.on_lost: Callable[[int, int], None] = lambda _source, _ts: None

    def restart(self) -> None:
        """Frames are missing, or a connection begins: what follows waits for the next key beat."""
        self._inflaters.clear()

    def beat(self, payload: bytes, ts: int, mono: int) -> Iterator[Sample]:
        """The samples of one frame; raises `ProtocolError` where it is none."""
        body: bytes | None = None
        at, whole, seen = 0, False, 0
        while at < len(payload):
            source, flags, start, length, at = entry_head(payload, at)
            data = payload[at : at + length]
            at += length
            if len(data) != length or start > LATEST_START or source >= len(self._limits) or seen >> source & 1:
                raise ProtocolError("a sample that is cut, or of no source")
            seen |= 1 << source
            if not flags & SAME:
                body, whole = self._body(source, flags, data)
            if whole:
                yield Sample(source, ts, mono + start * 1000, body)
            else:
                self.on_lost(source, ts)

    def _body(self, source: int, flags: int, data: bytes) -> tuple[bytes | None, bool]:
        """The pages, None for those of the sample before, and whether there is any knowing them."""
        if flags & KEY:
            self._inflaters[source] = zlib.decompressobj(-15)
        inflater = self._inflaters.get(source)
        if inflater is None or flags & UNCHANGED:
            return None, inflater is not None
        try:
            body = inflater.decompress(data + FLUSHED, self._limits[source])
            self.inflated += len(body)
            if not inflater.unconsumed_tail:
                return body, True
        except zlib.error:
            pass
        del self._inflaters[source]
        return None, False


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
