"""The state of a record's journal: being recorded, unfinished or finished."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from rollbook.errors import RecordError
from rollbook.journal.entries import segment_files
from rollbook.records.locate import MANIFEST
from rollbook.records.reading import read_regular

__all__ = [
    "FAILURE",
    "FAILURE_SIZE",
    "failure_of",
    "is_recording",
    "is_unfinished",
    "refuse_while_recording",
    "try_lock",
]

FAILURE, FAILURE_SIZE = "failure", 512
"""The file for the reason why writing failed, and its size; it is removed when the recording ends well."""


def failure_of(directory: Path) -> str:
    """Why the recorder could not write any more, as it noted beside the journal; empty if it did not fail."""
    try:
        return read_regular(directory / FAILURE, FAILURE_SIZE).decode("utf-8", "replace").strip()
    except RecordError:
        return ""


def is_unfinished(record: Path) -> bool:
    """Whether a record has a journal that was not processed to the end; the manifest is written last."""
    return bool(segment_files(record / "raw")) and not (record / MANIFEST).exists()


def is_recording(directory: Path) -> bool:
    """Whether a process is writing to the journal in this directory."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def refuse_while_recording(record: Path) -> None:
    """Raise `RecordError` for a record that is still being recorded."""
    if is_recording(record / "raw"):
        raise RecordError(f"{record} is still being recorded")


def try_lock(fd: int, operation: int) -> bool:
    """Take a lock; False if another process holds it. On a file system without locks it always succeeds."""
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
