"""Reads files of a record that others may have written: regular files only, and never more than expected."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

import msgspec

from rollbook.errors import RecordError

__all__ = [
    "LARGEST",
    "UNDECODABLE",
    "file_type",
    "open_regular",
    "read_regular",
    "read_target",
    "require_directory",
    "require_own",
    "require_regular",
]

LARGEST = 1 << 30
"""The most bytes of a document: `hosts.json` of ten thousand hosts is smaller."""

UNDECODABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What msgspec raises for JSON that is not valid, not of the expected type, nested too deeply or not UTF-8."""

TYPES = {
    stat.S_IFLNK: "a symlink",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a directory",
    stat.S_IFREG: "a file",
}


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file; `RecordError` names anything else, which could block, never end or lie elsewhere."""
    try:
        # Without O_NONBLOCK a FIFO would block here until another process opens it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        require_regular(path)
        raise RecordError(f"{path}: {error.strerror}") from error
    file = os.fdopen(descriptor, "rb")
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise _rejected(path, mode)
    return file


def read_regular(path: Path, largest: int = LARGEST) -> bytes:
    """The content of a regular file of at most `largest` bytes; `RecordError` for a larger one."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            data = file.read(largest + 1) if size <= largest else b""
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}") from error
    if size > largest or len(data) > largest:
        raise RecordError(f"{path} is larger than {largest >> 20} MiB")
    return data


def read_target(path: Path, largest: int = LARGEST) -> bytes:
    """Like `read_regular`, but a symlink is followed: for files that users and benchmarks name or place."""
    return read_regular(Path(os.path.realpath(path)), largest)  # Path.resolve raises RuntimeError for a symlink loop


def require_regular(path: Path) -> None:
    """Raise `RecordError` for a path that is not a regular file itself; it may be absent."""
    _require(path, stat.S_IFREG)


def require_directory(path: Path) -> None:
    """Raise `RecordError` for a path that is not a directory itself; it may be absent."""
    _require(path, stat.S_IFDIR)


def require_own(path: Path, advice: str) -> None:
    """Raise `RecordError` for a directory of another user, who could replace what we write there meanwhile."""
    try:
        owner = path.stat().st_uid
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    if owner != os.geteuid():
        raise RecordError(f"{path} belongs to uid {owner}: {advice}")


def file_type(mode: int) -> str:
    """A file's type with its article: `a FIFO`."""
    return TYPES.get(stat.S_IFMT(mode), "a special file")


def _require(path: Path, wanted: int) -> None:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if stat.S_IFMT(mode) != wanted:
        raise _rejected(path, mode)


def _rejected(path: Path, mode: int) -> RecordError:
    return RecordError(f"{path} is {file_type(mode)}; Rollbook never writes one there and does not read it")
