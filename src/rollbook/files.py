"""Files: atomic writes, after which readers see the old or the complete new content, and temporary directories.

The temporary file lies in the same directory under an unpredictable name. It is created exclusively, so neither an
existing file nor a symlink is ever opened; file and directory are synced, and the rename replaces a symlink instead
of following it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from rollbook.errors import RecordError, UsageError

__all__ = [
    "BY_UMASK",
    "PRIVATE",
    "atomic_file",
    "atomic_path",
    "output_path",
    "remove_leftovers",
    "require_utf8",
    "sync_tree",
    "temporary_directory",
    "write_file",
]

PRIVATE = 0o600
"""Only the owner reads the file: the default, used for everything inside a record."""

BY_UMASK = 0o666
"""As permissive as the umask allows: for files that a user asks for outside a record."""

SUFFIX = ".part"
TEMPORARY = "rollbook-run-"
FRESH = 60.0  # seconds


def require_utf8(text: str | Path, what: str) -> None:
    """Raise `UsageError` for a text or path that is not UTF-8: neither documents nor SQL can contain it."""
    try:
        str(text).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not UTF-8: {str(text)!a}") from None


def write_file(path: Path, data: bytes, *, mode: int = PRIVATE) -> None:
    """Write a file atomically; `RecordError` if it cannot be written."""
    with atomic_file(path, mode=mode) as file:
        file.write(data)


@contextlib.contextmanager
def atomic_file(path: Path, *, mode: int = PRIVATE, sync: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` when the block ends without an exception.

    `sync=False` is for files whose loss in a crash of the machine is noticed. Raises `RecordError` for any `OSError`,
    including those of the block.
    """
    with atomic_path(path, mode=mode, sync=sync) as temporary, temporary.open("r+b") as file:
        yield file


@contextlib.contextmanager
def atomic_path(path: Path, *, mode: int = PRIVATE, sync: bool = True) -> Iterator[Path]:
    """Create a temporary file for a library to fill; it replaces `path` when the block ends without an exception.

    The library must write into the existing file (in DuckDB: `USE_TMP_FILE false`). `sync=False` is for intermediate
    files that need not survive a crash. Raises `RecordError` for any `OSError`, including those of the block.
    """
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}{SUFFIX}")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode))
        try:
            yield temporary
            if sync:
                _sync(temporary, os.O_RDWR | os.O_NOFOLLOW)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        if sync:
            _sync(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def output_path(path: Path) -> Iterator[Path]:
    """Where to write a file that a user named; a link, pipe, terminal or device that is there is written into.

    For those, it is a temporary file, whose content is written at the end of the block. Raises `RecordError`.
    """
    try:
        is_replaced = not os.path.lexists(path) or stat.S_ISREG(path.lstat().st_mode)
        if is_replaced:
            yield path
            return
        with temporary_directory() as directory:
            yield directory / "output"
            with (directory / "output").open("rb") as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error


@contextlib.contextmanager
def temporary_directory(parent: Path | None = None) -> Iterator[Path]:
    """Create a private directory that is removed at the end of the block, and remove those of killed processes.

    A process holds a lock on its directory while it lives; the lock of a killed process is free. Raises `OSError`.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(parent)
    path = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=parent))
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(descriptor)


def _remove_abandoned(parent: Path) -> None:
    for found in parent.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            about = found.lstat()
            # A new directory may not be locked yet.
            if about.st_uid != os.geteuid() or time.time() - about.st_mtime < FRESH:
                continue
            descriptor = os.open(found, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(found, ignore_errors=True)
            finally:
                os.close(descriptor)


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files that a killed process left in a directory or below it."""
    for found in directory.rglob(f".*{SUFFIX}"):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(found.lstat().st_mode):
                found.unlink()


def sync_tree(path: Path) -> None:
    """Make a directory and everything below it durable."""
    for found in (*path.rglob("*"), path, path.parent):
        if not found.is_symlink():
            _sync(found, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
