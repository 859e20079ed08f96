"""The raw log of a run: what every host sent, as it came, in append-only segments that survive any crash.

`raw/000001.seg`, `raw/000002.seg`, … hold entries, each `>4sIIIQ` (magic, length of the payload, CRC-32 of all that
follows, host number, time of arrival on the collector's clock) and a payload of one letter and its content: `F` a
frame of that host (`>cIQQ`: type, number, both clocks; then the frame's payload), `J` an event of the collector as
JSON. Every segment begins with the `begin` event, so that it can be read alone; a recorder writes it once more when all
hosts are ready, so that there are two of it, far apart, in a journal of one segment too.

A reader believes an entry when its checksum is right and passes over everything else: a torn tail, a hole, a page
of zeros cost the entries they touch and no other. Only where every `begin` is among them is there no telling whose the
others are.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn, Self

import msgspec

from rollbook.errors import RecordError
from rollbook.protocol.frames import Frame
from rollbook.records.reading import open_regular, read_regular

__all__ = [
    "RUN",
    "Entry",
    "Journal",
    "Reader",
    "entry",
    "failure",
    "frame_of",
    "must_be_over",
    "read",
    "recording",
    "segments",
    "unfinished",
]

MAGIC = b"RBJ1"
HEADER = struct.Struct(">4sIIIQ")
CHECKED = struct.Struct(">IQ")
FRAME = struct.Struct(">cIQQ")
RUN = 0xFFFFFFFF
"""The host number of what concerns the run and no host."""

SEGMENT = 64 << 20
LARGEST = 16 << 20  # of a payload: frames are at most 4 MiB, events smaller
CHUNK = 1 << 20
FAILURE, FAILURE_SIZE = "failure", 512  # file for the reason why writing failed; removed when the recording ends well


class Journal:
    """Appends to `directory`, which it makes. One writer at a time; it never overwrites what is there.

    Every frame of a host must be written, pongs and beats too: the reader tells from their numbers that none is
    missing. What was given is in the file after `flush` and on the disk after `sync`, which may run in a thread of
    its own while frames are added. When the disk is full, or the file cannot be written for another reason, a
    `RecordError` is raised, then and at every later call; what was written before stays good.
    """

    def __init__(self, directory: Path, begin: dict[str, Any], segment_bytes: int = SEGMENT) -> None:
        self._directory, self._begin, self._limit = directory, {**begin, "event": "begin"}, segment_bytes
        self._waiting = bytearray()
        self._size, self._fd, self._failure = 0, -1, ""
        self._adding, self._writing = threading.Lock(), threading.Lock()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            if not _locked(self._lock, fcntl.LOCK_EX):
                os.close(self._lock)
                raise RecordError(f"{directory} is being written by another process")
        except OSError as error:
            raise RecordError(f"cannot record to {directory}: {error.strerror}") from error
        self._reserve_failure()
        self._number = max((int(path.stem) for path in segments(directory)), default=0)
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def frame(self, host: int, arrived_ns: int, frame: Frame) -> None:
        """A frame of that host, which arrived then."""
        head = FRAME.pack(frame.kind.encode("latin-1"), frame.seq, frame.mono, frame.wall)
        self._append(host, arrived_ns, b"F" + head + frame.payload)

    def event(self, event: dict[str, Any], host: int | None = None) -> None:
        """An event of the collector, of one host or of the run, now."""
        self._append(RUN if host is None else host, time.time_ns(), b"J" + json.dumps(event).encode())

    def begin(self) -> None:
        """Write the event that every segment begins with once more: damage at one place must not cost the rest."""
        self.event(self._begin)

    def flush(self) -> None:
        """Write what waits into the file: it survives our death, not yet the machine's."""
        with self._writing:
            self._flush()

    def sync(self) -> None:
        """Flush, and have it on the disk."""
        with self._writing:
            self._flush()
            self._sync()

    def close(self) -> None:
        """Sync and give the directory free. A journal that has failed is closed as it is."""
        if self._lock < 0:
            return
        try:
            if not self._failure:
                self.sync()
                (self._directory / FAILURE).unlink(missing_ok=True)
        finally:
            for fd in (self._fd, self._lock):
                if fd >= 0:
                    os.close(fd)
            self._fd = self._lock = -1

    def _append(self, host: int, arrived_ns: int, payload: bytes) -> None:
        self._check()
        with self._adding:
            self._waiting += entry(host, arrived_ns, payload)
            full = len(self._waiting) > LARGEST
        if full:
            self.flush()

    def _flush(self) -> None:
        self._check()
        with self._adding:
            data, self._waiting = self._waiting, bytearray()
        self._write(data)
        if self._size >= self._limit:
            self._sync()
            os.close(self._fd)
            self._fd = -1  # the number may be another file's soon
            self._open()

    def _open(self) -> None:
        self._number, self._size = self._number + 1, 0
        path = self._directory / f"{self._number:06d}.seg"
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.fsync(self._lock)  # the name, too, must survive
        except OSError as error:
            self._fail(error)
        self._write(entry(RUN, time.time_ns(), b"J" + json.dumps(self._begin).encode()))

    def _write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        try:
            while view:
                done = os.write(self._fd, view)
                self._size += done
                view = view[done:]
        except OSError as error:
            self._fail(error)

    def _sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._fail(error)

    def _reserve_failure(self) -> None:
        """Allocate the file for the reason of a failure: on a full disk, only allocated blocks can be written."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._directory / FAILURE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, b" " * FAILURE_SIZE)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _fail(self, error: OSError) -> NoReturn:
        self._failure = f"cannot write to {self._directory}: {error.strerror}; recording ends here"
        with contextlib.suppress(OSError):
            descriptor = os.open(self._directory / FAILURE, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                reason = f"recording ended early: {error.strerror}"
                os.pwrite(descriptor, reason.encode()[:FAILURE_SIZE].ljust(FAILURE_SIZE), 0)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        raise RecordError(self._failure) from error

    def _check(self) -> None:
        if self._failure:
            raise RecordError(self._failure)


def entry(host: int, arrived_ns: int, payload: bytes) -> bytes:
    """One entry as it lies in a segment."""
    crc = zlib.crc32(payload, zlib.crc32(CHECKED.pack(host, arrived_ns)))
    return HEADER.pack(MAGIC, len(payload), crc, host, arrived_ns) + payload


class Entry(msgspec.Struct, frozen=True):
    """One whole entry: where it lies (segment, offset of its payload), whose it is, and its content."""

    segment: int
    offset: int
    host: int
    arrived_ns: int
    payload: bytes

    @property
    def event(self) -> dict[str, Any] | None:
        """The event, if it is one."""
        if self.payload[:1] != b"J":
            return None
        try:
            found = json.loads(self.payload[1:])
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    @property
    def frame(self) -> Frame | None:
        """The frame, if it is one."""
        return frame_of(self.payload)


def frame_of(payload: bytes) -> Frame | None:
    """The frame in the payload of an entry, if it is one."""
    if payload[:1] != b"F" or len(payload) < 1 + FRAME.size:
        return None
    kind, seq, mono, wall = FRAME.unpack_from(payload, 1)
    return Frame(kind.decode("latin-1"), seq, mono, wall, payload[1 + FRAME.size :])


class Reader:
    """Iterates over the entries of a journal in the order they were written; holds a few MiB, whatever its size.

    `damaged` counts entries that began and were cut or changed, `passed_over` the bytes that belonged to no entry.
    """

    def __init__(self, directory: Path) -> None:
        self.paths = segments(directory)
        self.damaged = self.passed_over = 0

    def __iter__(self) -> Iterator[Entry]:
        for number, path in enumerate(self.paths):
            yield from self._segment(number, path)

    def _segment(self, number: int, path: Path) -> Iterator[Entry]:
        buffer, base, at, more = b"", 0, 0, True
        try:
            with open_regular(path) as file:
                while more:
                    piece = file.read(CHUNK)
                    buffer, base, at, more = buffer[at:] + piece, base + at, 0, bool(piece)
                    while (size := self._entry_at(buffer, at, more)) is not None:
                        if size > 0:
                            _, _, _, host, arrived = HEADER.unpack_from(buffer, at)
                            start = at + HEADER.size
                            yield Entry(number, base + start, host, arrived, buffer[start : at + size])
                        else:
                            self.passed_over -= size
                        at += abs(size)
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}") from error

    def _entry_at(self, buffer: bytes, at: int, more: bool) -> int | None:
        """The size of the good entry at this place, the negative number of bytes to pass over, or None to read on."""
        left = len(buffer) - at
        if left < HEADER.size:
            return None if more or not left else self._skip(buffer, at, more)
        magic, length, crc, _, _ = HEADER.unpack_from(buffer, at)
        if magic != MAGIC or length > LARGEST:
            return self._skip(buffer, at, more, began=magic == MAGIC)
        size: int = HEADER.size + length
        if size > left:
            return None if more else self._skip(buffer, at, more)
        if zlib.crc32(memoryview(buffer)[at + 12 : at + size]) == crc:
            return size
        return self._skip(buffer, at, more)

    def _skip(self, buffer: bytes, at: int, more: bool, *, began: bool = True) -> int:
        """Go on at the next magic, be it inside what this entry claims to be: its length may be what is damaged."""
        self.damaged += began
        found = buffer.find(MAGIC, at + 1)
        if found >= 0:
            return at - found
        # A magic may be cut by the edge of what has been read.
        return -max(1, len(buffer) - at - (len(MAGIC) - 1 if more else 0))


def read(directory: Path) -> Reader:
    """All whole entries of a journal."""
    return Reader(directory)


def failure(directory: Path) -> str:
    """Why the recorder could not write on, as it noted in the journal's directory; empty if it did not fail."""
    try:
        return read_regular(directory / FAILURE, FAILURE_SIZE).decode("utf-8", "replace").strip()
    except RecordError:
        return ""


def segments(directory: Path) -> list[Path]:
    """The segments of a journal, in order."""
    return sorted(path for path in directory.glob("*.seg") if path.stem.isdecimal())


def unfinished(record: Path) -> bool:
    """Whether a record has a journal of which not everything was made yet; the manifest is written last."""
    return bool(segments(record / "raw")) and not (record / "manifest.json").exists()


def recording(directory: Path) -> bool:
    """Whether somebody writes to the journal right now."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def must_be_over(record: Path) -> None:
    """Raise `RecordError` for a record that somebody is still writing."""
    if recording(record / "raw"):
        raise RecordError(f"{record} is still being recorded")


def _locked(fd: int, how: int) -> bool:
    """Take a lock; False where another process has it. A file system without locks refuses nobody."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
