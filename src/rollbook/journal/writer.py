"""Writing a journal: entries appended to segments, flushed and synced as the recorder asks."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, NoReturn, Self

from rollbook.errors import RecordError
from rollbook.journal.clocks import STEP
from rollbook.journal.entries import LARGEST, RUN, pack_entry, pack_frame, segment_files
from rollbook.journal.state import FAILURE, FAILURE_SIZE, try_lock
from rollbook.protocol.frames import Frame

__all__ = ["Journal"]

SEGMENT = 64 << 20
MAX_APART = 1_000_000  # ns between two clocks that are read together


class Journal:
    """Appends to the journal in `directory`, which it creates. One writer at a time; nothing is overwritten.

    Every frame of a host must be written, pongs and heartbeats included: a reader detects lost frames by their numbers.
    Entries are in the file after `flush` and on the disk after `sync`, which may run in another thread while frames are
    added. A step of the collector's wall clock is written as an event before the next entry. When the disk is full, or
    a write fails for another reason, this call and every later one raise `RecordError`; what was written before stays
    readable.
    """

    def __init__(self, directory: Path, begin: dict[str, Any], segment_bytes: int = SEGMENT) -> None:
        self._directory, self._begin, self._limit = directory, {**begin, "event": "begin"}, segment_bytes
        self._waiting = bytearray()
        self._size, self._fd, self._failure = 0, -1, ""
        self._clocks = _clocks()
        self._adding, self._writing = threading.Lock(), threading.Lock()
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            if not try_lock(self._lock, fcntl.LOCK_EX):
                os.close(self._lock)
                raise RecordError(f"{directory} is being written by another process")
        except OSError as error:
            raise RecordError(f"cannot record to {directory}: {error.strerror}") from error
        with contextlib.suppress(OSError):  # on a full disk, only blocks that are already allocated can be written
            self._note_failure("", os.O_CREAT | os.O_EXCL)
        self._number = max((int(path.stem) for path in segment_files(directory)), default=0)
        try:
            self._open()
        except RecordError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def frame(self, host: int, arrived_ns: int, frame: Frame) -> None:
        """Add a frame of that host with its time of arrival."""
        self._check_clock()
        self._append(host, arrived_ns, pack_frame(frame))

    def event(self, event: dict[str, Any], host: int | None = None) -> None:
        """Add an event of the collector, about one host or the run, at the current time."""
        self._check_clock()
        arrived_ns, payload = _event(event)
        self._append(RUN if host is None else host, arrived_ns, payload)

    def begin(self) -> None:
        """Write the `begin` event again, so that damage in one place does not make the journal unreadable."""
        self.event(self._begin)

    def flush(self) -> None:
        """Write all entries to the file: they survive the end of this process, not yet that of the machine."""
        with self._writing:
            self._flush()

    def sync(self) -> None:
        """Flush and sync to disk."""
        with self._writing:
            self._flush()
            self._sync()

    def close(self) -> None:
        """Sync and release the directory. A journal that failed is closed as it is."""
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

    def _check_clock(self) -> None:
        """Add an event if the wall clock was set since the last call: frames after it have arrived on another clock."""
        before, self._clocks = self._clocks, _clocks()
        by = (self._clocks[0] - before[0]) - (self._clocks[1] - before[1])
        if abs(by) > STEP:
            self._append(RUN, *_event({"event": "clock set", "by_ns": by}))

    def _append(self, host: int, arrived_ns: int, payload: bytes) -> None:
        self._check()
        with self._adding:
            self._waiting += pack_entry(host, arrived_ns, payload)
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
            self._fd = -1  # the number may soon belong to another file
            self._open()

    def _open(self) -> None:
        self._number, self._size = self._number + 1, 0
        path = self._directory / f"{self._number:06d}.seg"
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.fsync(self._lock)  # the directory entry must survive too
        except OSError as error:
            self._fail(error)
        self._write(pack_entry(RUN, *_event(self._begin)))

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

    def _note_failure(self, reason: str, flags: int = 0) -> None:
        fd = os.open(self._directory / FAILURE, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
        try:
            os.pwrite(fd, reason.encode()[:FAILURE_SIZE].ljust(FAILURE_SIZE), 0)
            os.fsync(fd)
        finally:
            os.close(fd)

    def _fail(self, error: OSError) -> NoReturn:
        self._failure = f"cannot write to {self._directory}: {error.strerror}; recording ends here"
        with contextlib.suppress(OSError):
            self._note_failure(f"recording ended early: {error.strerror}")
        raise RecordError(self._failure) from error

    def _check(self) -> None:
        if self._failure:
            raise RecordError(self._failure)


def _event(event: dict[str, Any]) -> tuple[int, bytes]:
    """The time and payload of an entry that holds an event."""
    wall_ns, boot_ns = _clocks()
    return wall_ns, b"J" + json.dumps({**event, "boot_ns": boot_ns}).encode()


def _clocks() -> tuple[int, int]:
    """The wall clock and the time since boot, suspends included, read without a pause between them."""
    while True:
        boot_ns, wall_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME), time.time_ns()
        if time.clock_gettime_ns(time.CLOCK_BOOTTIME) - boot_ns < MAX_APART:
            return wall_ns, boot_ns
