r"""Decodes the frames of an agent from a byte stream that may contain other output.

A frame is found by its marker and accepted only if its checksum matches. Banners, shell noise and truncated or damaged
frames are skipped and counted. One stream may mix two carriers: binary frames (`\xffRB1`, length, CRC-32, …) and lines
(`@rb1 TAG SEQ DATA`, the last line of a frame with `! TYPE MONO WALL SUM DATA`). Lines carry base64 with a CRC-32 (`z`)
or, from the shell stand-in, hexadecimal with the checksum of POSIX `cksum` (`p`). Lines on the output of a launcher
carry base64 with an authentication code (`m`) instead of a checksum.
"""

from __future__ import annotations

import binascii
import re
import struct
import zlib
from collections.abc import Callable

import msgspec

from rollbook.agent import NEED_SHELL
from rollbook.agent.secure import same
from rollbook.agent.wire import MAGIC

__all__ = ["LATEST", "Decoder", "Frame", "cksum"]

HEADER = struct.Struct(">4sIIcIQQ")
LARGEST = 4 << 20
MARKER = re.compile(re.escape(MAGIC) + rb"|@rb1 ")
LINE = re.compile(rb"@rb1 ([^ ]{1,27}) (\d{1,10}) (.*)", re.DOTALL)  # a tag is a rank or a process id, and a secret
LAST = re.compile(rb"! ([A-Z]) (\d{1,20}) (\d{1,20}) ([zpm])([0-9a-f]{1,32}) ?([0-9A-Za-z+/=]*)")
LONGEST_LINE = 2000
MAX_TAGS = 4096  # an agent has one, the stand-in two
MAX_SEQ = (1 << 32) - 1  # the limit of a binary frame
LATEST = (1 << 62) - 1  # ns; no correct clock is later, and sums with offsets still fit into 64 bits
MAX_MISSING = 4096  # sequence numbers of lost frames that are remembered
MAX_NOISE = 1 << 20  # bytes that a login may print
MAX_WASTED = 4 * LARGEST  # bytes; their checksums take a few hundredths of a second


class Frame(msgspec.Struct, frozen=True):
    """One message of an agent: type letter, sequence number, both clocks of the host in nanoseconds, payload."""

    kind: str
    seq: int
    mono: int
    wall: int
    payload: bytes
    tag: str = ""


class Decoder:
    """Bytes in, frames out. Memory is bounded by the largest frame, whatever the host sends.

    `noise` counts bytes outside of frames, less the bytes of valid frames since; `head` keeps the first of them for
    error messages. `damaged` counts frames with a wrong length or checksum; `wasted` the bytes read for their
    checksums, less the bytes of valid frames since; `lost` the sequence numbers missing between valid frames.
    `needs_shell` is set when the host reports that it has no Python. `code` makes the authentication code of a frame's
    head and payload; then only frames with that code are valid.
    """

    def __init__(self, code: Callable[[bytes, bytes], bytes] | None = None) -> None:
        self._code = code
        self.needs_shell = False
        self.noise = self.damaged = self.wasted = self.lost = 0
        self.head = b""
        self._buffer = bytearray()
        self._parts: dict[bytes, tuple[bytes, bytearray]] = {}
        self._held = 0  # bytes in `_parts`
        self._seen: dict[str, int] = {}
        self._missing: set[tuple[str, int]] = set()
        self._ready: list[Frame] = []

    @property
    def is_mostly_noise(self) -> bool:
        """Whether the host sends so much outside of valid frames that it must be disconnected.

        Valid frames compensate for noise: over days, a channel with few errors collects many.
        """
        return self.noise > MAX_NOISE or self.wasted > MAX_WASTED

    def feed(self, data: bytes, *, end: bool = False) -> list[Frame]:
        """Decode the next bytes; returns the frames that are complete. `end` means that no more bytes follow.

        A host can announce false large frames faster than their checksums can be computed: then the rest is dropped.
        """
        self._buffer += data
        self._ready = []
        while (found := MARKER.search(self._buffer)) is not None:
            if self.wasted > MAX_WASTED:
                self._buffer.clear()
                break
            self._drop(found.start())
            used = self._binary(end=end) if self._buffer[0] == MAGIC[0] else self._line(end=end)
            if used is None:
                return self._ready
            if used:
                del self._buffer[:used]
            else:
                self._drop(1)  # skip the false marker; a valid frame may follow
        # The next marker may be incomplete at the end of the buffer.
        self._drop(len(self._buffer) if end else max(0, len(self._buffer) - 4))
        return self._ready

    def _drop(self, count: int) -> None:
        if count:
            self.noise += count
            if len(self.head) < 4096:
                self.head += bytes(self._buffer[: min(count, 4096)])
            del self._buffer[:count]

    def _accept(self, frame: Frame) -> None:
        """Output a valid frame and count what is missing before it; repeated frames are dropped.

        An agent on a shared channel sends some frames a second time at the end: missing ones are then output late.
        """
        self.noise = max(0, self.noise - HEADER.size - len(frame.payload))
        self.wasted = max(0, self.wasted - len(frame.payload))
        before, missing = self._seen.get(frame.tag, -1), self._missing
        if frame.mono | frame.wall > LATEST or (before < 0 and len(self._seen) >= MAX_TAGS):
            self._damage()
        elif frame.seq > before:
            self.lost += frame.seq - before - 1
            self._seen[frame.tag] = frame.seq
            if frame.tag and len(missing) < MAX_MISSING:
                missing.update((frame.tag, seq) for seq in range(before + 1, min(frame.seq, before + MAX_MISSING)))
            self._ready.append(frame)
        elif (frame.tag, frame.seq) in missing:
            missing.remove((frame.tag, frame.seq))
            self.lost -= 1
            self._ready.append(frame)

    def _damage(self, wasted: int = 0) -> int:
        self.damaged += 1
        self.wasted += wasted
        return 0

    def _binary(self, *, end: bool) -> int | None:
        """Decode a binary frame at the start of the buffer: bytes used, 0 if it is not one, None to wait for more."""
        if len(self._buffer) < HEADER.size:
            return self._damage() if end else None
        _, length, crc, kind, seq, mono, wall = HEADER.unpack_from(self._buffer)
        size: int = HEADER.size + length
        if self._code or length > LARGEST or not kind.isalpha():
            return self._damage()
        if len(self._buffer) < size:
            return self._damage() if end else None
        payload = bytes(self._buffer[HEADER.size : size])
        rest = bytes(self._buffer[12 : HEADER.size])
        if zlib.crc32(payload, zlib.crc32(rest)) != crc:
            return self._damage(length)
        self._accept(Frame(kind.decode(), seq, mono, wall, payload))
        return size

    def _line(self, *, end: bool) -> int | None:
        """Decode a line of a frame at the start of the buffer; returns the same as `_binary`."""
        newline = self._buffer.find(b"\n", 0, LONGEST_LINE)
        if newline < 0:
            return None if len(self._buffer) < LONGEST_LINE and not end else self._damage()
        line = bytes(self._buffer[:newline]).rstrip(b"\r")
        if line == NEED_SHELL:
            self.needs_shell = True
            return newline + 1
        found = LINE.fullmatch(line)
        # If a launcher cut this line, the next one may start inside it: only this one is lost.
        if found is None or b"@rb1" in found[3] or int(found[2]) > MAX_SEQ:
            return self._damage()
        tag, seq, data = found.groups()
        last = LAST.fullmatch(data)
        # An agent finishes a frame before it starts the next: an earlier unfinished one has lost its last line.
        started, parts = self._parts.pop(tag, (seq, bytearray()))
        self._held -= len(parts)
        parts = parts if started == seq else bytearray()
        if last is None:
            parts += data
            if len(self._parts) < MAX_TAGS and self._held + len(parts) <= 2 * LARGEST:
                self._held += len(parts)
                self._parts[tag] = seq, parts
            return newline + 1
        kind, mono, wall, code, total, data = last.groups()
        data = bytes(parts) + data
        payload = self._payload(code, total, b"%s %s %s %s" % (kind, seq, mono, wall), data)
        if payload is None:
            return self._damage(len(data))
        self._accept(Frame(kind.decode(), int(seq), int(mono), int(wall), payload, tag.decode("ascii", "replace")))
        return newline + 1

    def _payload(self, kind: bytes, total: bytes, head: bytes, data: bytes) -> bytes | None:
        """The payload of a frame of lines, or None if its checksum or code is wrong."""
        if (kind == b"m") != (self._code is not None):
            return None
        try:
            if self._code is not None:
                payload = binascii.a2b_base64(data)
                return payload if same(self._code(head, payload), bytes.fromhex(total.decode())) else None
            if kind == b"z":
                payload = binascii.a2b_base64(data)
                return payload if zlib.crc32(payload, zlib.crc32(head)) == int(total, 16) else None
            payload = binascii.unhexlify(data)
            return payload if cksum(head + payload) == int(total) else None
        except ValueError:
            return None


def _cksum_table() -> tuple[int, ...]:
    table = []
    for index in range(256):
        value = index << 24
        for _ in range(8):
            value = (value << 1) ^ 0x04C11DB7 if value & 0x80000000 else value << 1
        table.append(value & 0xFFFFFFFF)
    return tuple(table)


def cksum(data: bytes, table: tuple[int, ...] = _cksum_table()) -> int:
    """The checksum that POSIX `cksum` prints."""
    value, length = 0, len(data)
    while length:
        data, length = data + bytes((length & 0xFF,)), length >> 8
    for byte in data:
        value = ((value << 8) & 0xFFFFFFFF) ^ table[(value >> 24) ^ byte]
    return value ^ 0xFFFFFFFF
