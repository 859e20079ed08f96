"""Reading a journal: every undamaged entry, whatever is cut or damaged between them.

An entry counts if its checksum is correct. A torn tail, a hole or a page of zeros affects only the entries it touches.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from rollbook.errors import RecordError
from rollbook.journal.entries import CHECKED_AT, HEADER, LARGEST, MAGIC, Entry, segment_files
from rollbook.records.reading import open_regular

__all__ = ["Follower", "Reader"]

CHUNK = 1 << 20


class Reader:
    """Iterates over the entries of a journal in the order they were written, with a few MiB of memory.

    `damaged` counts entries that were cut or changed, `skipped` the bytes that belong to no entry.
    """

    def __init__(self, directory: Path) -> None:
        self.paths = segment_files(directory)
        self.damaged = self.skipped = 0
        self._read = 0  # bytes of the last segment

    def __iter__(self) -> Iterator[Entry]:
        for number, path in enumerate(self.paths):
            yield from self._segment(number, path)

    def _segment(self, number: int, path: Path, base: int = 0, *, grows: bool = False) -> Iterator[Entry]:
        """The entries from `base` on; of a file that `grows`, an incomplete entry at the end is left for later."""
        buffer, at, more = b"", 0, True
        try:
            with open_regular(path) as file:
                file.seek(base)
                while more:
                    piece = file.read(CHUNK)
                    buffer, base, at, more = buffer[at:] + piece, base + at, 0, bool(piece)
                    while (size := self._entry_at(buffer, at, more or grows)) is not None:
                        if size > 0:
                            _, _, crc, host, arrived = HEADER.unpack_from(buffer, at)
                            start = at + HEADER.size
                            yield Entry(number, base + start, host, arrived, buffer[start : at + size], crc)
                        else:
                            self.skipped -= size
                        at += abs(size)
                self._read = base + at
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}") from error

    def _entry_at(self, buffer: bytes, at: int, more: bool) -> int | None:
        """The size of the undamaged entry at this offset, the negative number of bytes to skip, or None to read on."""
        left = len(buffer) - at
        if left < HEADER.size:
            return None if more or not left else self._skip(buffer, at, more)
        magic, length, crc, _, _ = HEADER.unpack_from(buffer, at)
        if magic != MAGIC or length > LARGEST:
            return self._skip(buffer, at, more, is_entry=magic == MAGIC)
        size: int = HEADER.size + length
        if size > left:
            return None if more else self._skip(buffer, at, more)
        if zlib.crc32(memoryview(buffer)[at + CHECKED_AT : at + size]) == crc:
            return size
        return self._skip(buffer, at, more)

    def _skip(self, buffer: bytes, at: int, more: bool, *, is_entry: bool = True) -> int:
        """Continue at the next magic, even inside this entry: its length may be what is damaged."""
        self.damaged += is_entry
        found = buffer.find(MAGIC, at + 1)
        if found >= 0:
            return at - found
        # The end of the buffer may cut a magic.
        return -max(1, len(buffer) - at - (len(MAGIC) - 1 if more else 0))


class Follower(Reader):
    """Reads a journal while it is written: every iteration gives the entries that were added since the one before.

    An iteration must be used to its end, or the next one starts where it started.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._directory, self._number = directory, 0

    def __iter__(self) -> Iterator[Entry]:
        while True:
            self.paths = segment_files(self._directory)
            if not self.paths:
                return
            is_last = self._number == len(self.paths) - 1
            yield from self._segment(self._number, self.paths[self._number], self._read, grows=is_last)
            if is_last:
                return
            self._number, self._read = self._number + 1, 0
