"""/sys/firmware/dmi/entries/17-*/raw: memory slots, their DIMMs and speeds (SMBIOS 3, type 17).

Readable by root only. Empty slots are listed too, because the slot of a failed DIMM appears empty.
"""

from __future__ import annotations

import re
import struct
from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, info, key, same
from rollbook.sources.dmi import without_placeholder

ROOT = "/sys/firmware/dmi/entries"
MEMORY_DEVICE = 17
# SMBIOS 3, 7.18.2: types found in servers; others keep their number.
TYPES = {0x18: "DDR3", 0x1A: "DDR4", 0x1B: "LPDDR", 0x1E: "LPDDR4", 0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5"}
TYPES |= {0x07: "RAM", 0x09: "flash", 0x1F: "logical non-volatile", 0x23: "LPDDR5", 0x24: "HBM3"}
UNKNOWN, EXTENDED = 0xFFFF, 0x7FFF
IN_KIB = 0x8000


class Slot(Facts):
    """One slot. The size of an empty slot is 0 MiB, an unknown size is null. Speeds are in MT/s."""

    slot: Annotated[str, key()]
    size_mib: Annotated[int | None, same("MiB")] = None
    memory_type: Annotated[str | None, same()] = None
    rated_mts: Annotated[int | None, same("MT/s")] = None
    configured_mts: Annotated[int | None, same("MT/s")] = None
    manufacturer: Annotated[str | None, info()] = None
    part_number: Annotated[str | None, info()] = None
    serial: Annotated[str | None, info()] = None  # not unique: hypervisors give all machines the same


def octets(text: str) -> bytes:
    r"""The bytes of a page, in which bytes that are not UTF-8 are escaped as `\x9f`."""
    return re.sub(rb"\\x([89a-f][0-9a-f])", lambda found: bytes.fromhex(found[1].decode()), text.encode())


class Structure:
    """The fixed part of an SMBIOS structure, padded with zeros, and its strings, which are numbered from 1."""

    def __init__(self, data: bytes) -> None:
        self.fixed = data[: data[1]] + bytes(256 - data[1])
        self.strings = data[data[1] :].split(b"\0")

    def word(self, at: int) -> int:
        """The two-byte number at an offset."""
        return int(struct.unpack_from("<H", self.fixed, at)[0])

    def long(self, at: int) -> int:
        """The four-byte number at an offset."""
        return int(struct.unpack_from("<I", self.fixed, at)[0])

    def text(self, at: int) -> str | None:
        """The string whose number is at an offset."""
        number = self.fixed[at]
        found = self.strings[number - 1] if 0 < number <= len(self.strings) else b""
        return without_placeholder("".join(char for char in found.decode("latin-1") if char.isprintable()))

    def size(self) -> int | None:
        """The size in MiB. Large sizes are in the extended field, small ones may be in KiB."""
        size = self.word(0x0C)
        if size == UNKNOWN:
            return None
        if size == EXTENDED:
            return self.long(0x1C) & 0x7FFFFFFF
        return (size & ~IN_KIB) // 1024 if size & IN_KIB else size

    def speed(self, at: int, extended: int) -> int | None:
        """The speed in MT/s; 0 means unknown."""
        return (self.long(extended) if self.word(at) == UNKNOWN else self.word(at)) or None


def parse(pages: Pages) -> list[Slot]:
    """One structure per entry. Structures without zero bytes, which the shell stand-in drops, are left out."""
    rows: dict[str, Slot] = {}
    for path, text in sorted(pages.items(), key=lambda page: (len(page[0]), page[0])):
        data = octets(text)
        if len(data) < 2 or data[0] != MEMORY_DEVICE or not 0x15 <= data[1] <= len(data) or not data.endswith(b"\0\0"):
            continue
        one = Structure(data)
        name = " ".join(filter(None, (one.text(0x11), one.text(0x10)))) or "slot"
        # Some boards use one name for all slots; the firmware lists them in a fixed order.
        slot = name if name not in rows else f"{name} #{path.split('/')[-2].partition('-')[2]}"
        in_use = one.size() != 0
        rows[slot] = Slot(
            slot,
            one.size(),
            TYPES.get(one.fixed[0x12], str(one.fixed[0x12])) if in_use else None,
            one.speed(0x15, 0x54) if in_use else None,
            one.speed(0x20, 0x58) if in_use else None,
            one.text(0x17) if in_use else None,
            one.text(0x1A) if in_use else None,
            one.text(0x18) if in_use else None,
        )
    return list(rows.values())


SOURCE = Glob([f"{ROOT}/17-*/raw"], parse, root=True)
