"""/sys/firmware/dmi/entries/17-*/raw: every memory slot, what is in it and how fast it runs (SMBIOS 3, type 17).

Only root may read it. The slots that are empty are the telling ones: a DIMM that died is one of them.
"""

from __future__ import annotations

import re
import struct
from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, info, key, same
from rollbook.sources.dmi import told

ROOT = "/sys/firmware/dmi/entries"
MEMORY_DEVICE = 17
# SMBIOS 3, 7.18.2: what servers have; the others keep their number.
TYPES = {0x18: "DDR3", 0x1A: "DDR4", 0x1B: "LPDDR", 0x1E: "LPDDR4", 0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5"}
TYPES |= {0x07: "RAM", 0x09: "flash", 0x1F: "logical non-volatile", 0x23: "LPDDR5", 0x24: "HBM3"}
UNKNOWN, EXTENDED = 0xFFFF, 0x7FFF
IN_KIB = 0x8000


class Slot(Facts):
    """One slot: 0 MiB where it is empty, None where the firmware does not know. Speeds are in million transfers/s."""

    slot: Annotated[str, key()]
    size_mib: Annotated[int | None, same("MiB")] = None
    memory_type: Annotated[str | None, same()] = None
    rated_mts: Annotated[int | None, same("MT/s")] = None
    configured_mts: Annotated[int | None, same("MT/s")] = None
    manufacturer: Annotated[str | None, info()] = None
    part_number: Annotated[str | None, info()] = None
    serial: Annotated[str | None, info()] = None  # not one host's own: hypervisors give all machines the same


def octets(text: str) -> bytes:
    r"""The bytes of a page: those that were no UTF-8 stand in it as `\x9f`."""
    return re.sub(rb"\\x([89a-f][0-9a-f])", lambda found: bytes.fromhex(found[1].decode()), text.encode())


class Structure:
    """The fixed part of a structure, and the strings behind it, which it counts from 1; fields it lacks are 0."""

    def __init__(self, data: bytes) -> None:
        self.fixed = data[: data[1]] + bytes(256 - data[1])
        self.strings = data[data[1] :].split(b"\0")

    def word(self, at: int) -> int:
        """Two bytes."""
        return int(struct.unpack_from("<H", self.fixed, at)[0])

    def long(self, at: int) -> int:
        """Four bytes."""
        return int(struct.unpack_from("<I", self.fixed, at)[0])

    def text(self, at: int) -> str | None:
        """A string, by its number."""
        number = self.fixed[at]
        found = self.strings[number - 1] if 0 < number <= len(self.strings) else b""
        return told("".join(char for char in found.decode("latin-1") if char.isprintable()))

    def size(self) -> int | None:
        """MiB; a size that does not fit stands at the end, a small one may be in KiB."""
        size = self.word(0x0C)
        if size == UNKNOWN:
            return None
        if size == EXTENDED:
            return self.long(0x1C) & 0x7FFFFFFF
        return (size & ~IN_KIB) // 1024 if size & IN_KIB else size

    def speed(self, at: int, extended: int) -> int | None:
        """0 is unknown."""
        return (self.long(extended) if self.word(at) == UNKNOWN else self.word(at)) or None


def parse(pages: Pages) -> list[Slot]:
    """A structure per entry. Text without its zero bytes came through a shell, which cannot hold them: left out."""
    rows: dict[str, Slot] = {}
    for path, text in sorted(pages.items(), key=lambda page: (len(page[0]), page[0])):
        data = octets(text)
        if len(data) < 2 or data[0] != MEMORY_DEVICE or not 0x15 <= data[1] <= len(data) or not data.endswith(b"\0\0"):
            continue
        one = Structure(data)
        name = " ".join(filter(None, (one.text(0x11), one.text(0x10)))) or "slot"
        # Some boards call all slots the same; firmware lists them in one order.
        slot = name if name not in rows else f"{name} #{path.split('/')[-2].partition('-')[2]}"
        there = one.size() != 0
        rows[slot] = Slot(
            slot,
            one.size(),
            TYPES.get(one.fixed[0x12], str(one.fixed[0x12])) if there else None,
            one.speed(0x15, 0x54) if there else None,
            one.speed(0x20, 0x58) if there else None,
            one.text(0x17) if there else None,
            one.text(0x1A) if there else None,
            one.text(0x18) if there else None,
        )
    return list(rows.values())


SOURCE = Glob([f"{ROOT}/17-*/raw"], parse, root=True)
