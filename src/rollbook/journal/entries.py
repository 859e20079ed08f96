"""The format of the journal: entries in append-only segment files.

`raw/000001.seg`, `raw/000002.seg`, … hold entries, each `>4sIIIQ` (magic, length of the payload, CRC-32 of all that
follows, host number, time of arrival on the collector's clock) and a payload of one letter and its content: `F` a
frame of that host (`>cIQQ`: type, number, both clocks; then the frame's payload), `J` an event of the collector as
JSON, with `boot_ns`, the collector's CLOCK_BOOTTIME at that time. Every segment starts with the `begin` event, so that
it can be read alone. The recorder writes `begin` again when all hosts are ready, so that a journal of one segment also
has two copies, far apart. Without any `begin` the host numbers of the other entries have no meaning.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import msgspec

from rollbook.adapters.argv import storable_text
from rollbook.protocol.frames import Frame

__all__ = [
    "CHECKED_AT",
    "HEADER",
    "LARGEST",
    "MAGIC",
    "RUN",
    "Entry",
    "frame_of",
    "pack_entry",
    "pack_frame",
    "segment_files",
]

MAGIC = b"RBJ1"
HEADER = struct.Struct(">4sIIIQ")
CHECKED = struct.Struct(">IQ")
CHECKED_AT = HEADER.size - CHECKED.size  # offset in an entry of the first byte that the CRC-32 covers
FRAME = struct.Struct(">cIQQ")
RUN = 0xFFFFFFFF
"""The host number of events that concern the run, not a host."""
LARGEST = 16 << 20  # bytes of a payload: frames have at most 4 MiB, events less


class Entry(msgspec.Struct, frozen=True):
    """One undamaged entry: its position (segment, offset of its payload), its host number and its content."""

    segment: int
    offset: int
    host: int
    arrived_ns: int
    payload: bytes
    crc: int = 0

    @property
    def event(self) -> dict[str, Any] | None:
        """The event, if it is one; arguments that were not UTF-8 are replaced as far as needed."""
        if self.payload[:1] != b"J":
            return None
        try:
            found = json.loads(self.payload[1:])
            if b"\\ud" in self.payload.lower():  # half of a character
                found = json.loads(storable_text(json.dumps(found, ensure_ascii=False)))
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    @property
    def frame(self) -> Frame | None:
        """The frame, if it is one."""
        return frame_of(self.payload)


def pack_entry(host: int, arrived_ns: int, payload: bytes) -> bytes:
    """The bytes of one entry."""
    crc = zlib.crc32(payload, zlib.crc32(CHECKED.pack(host, arrived_ns)))
    return HEADER.pack(MAGIC, len(payload), crc, host, arrived_ns) + payload


def pack_frame(frame: Frame) -> bytes:
    """The payload of an entry that holds a frame."""
    return b"F" + FRAME.pack(frame.kind.encode("latin-1"), frame.seq, frame.mono, frame.wall) + frame.payload


def frame_of(payload: bytes) -> Frame | None:
    """The frame in the payload of an entry, if it is one."""
    if payload[:1] != b"F" or len(payload) < 1 + FRAME.size:
        return None
    kind, seq, mono, wall = FRAME.unpack_from(payload, 1)
    return Frame(kind.decode("latin-1"), seq, mono, wall, payload[1 + FRAME.size :])


def segment_files(directory: Path) -> list[Path]:
    """The segments of a journal, in order."""
    return sorted(path for path in directory.glob("*.seg") if path.stem.isdecimal())
