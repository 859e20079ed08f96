"""Packs a bundle into one file, `.tar.zst` or `.tar.gz`, which only its owner can read.

The program `zstd` compresses: Python has the format only from 3.14 on, and the program is part of every distribution.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, cast

from rollbook.errors import RecordError, UsageError
from rollbook.files import atomic_path
from rollbook.records.layout import list_files

__all__ = ["pack", "pack_files", "require_packer"]


def require_packer(archive: Path) -> None:
    """Raise `UsageError` if an archive of that name cannot be made here, before anything is collected."""
    if archive.name.endswith(".zst") and shutil.which("zstd") is None:
        raise UsageError("a .tar.zst needs the program zstd, which is not installed: use .tar.gz")


def pack(directory: Path, archive: Path) -> None:
    """Write the archive of a bundle; its entries lie below the name of the directory. Raises `RecordError`."""
    pack_files({f"{directory.name}/{name}": path for name, path in list_files(directory).items()}, archive)


def pack_files(files: Mapping[str, Path], archive: Path) -> None:
    """Write an archive of these files, by the names of their entries. Raises `RecordError`."""
    with (
        atomic_path(archive) as temporary,
        _compressed(archive, temporary) as stream,
        tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path in files.items():
            tar.add(path, name, recursive=False, filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """An entry without the names of this machine's users; anything but a regular file is left out."""
    if not entry.isreg():
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o600
    return entry


@contextlib.contextmanager
def _compressed(archive: Path, target: Path) -> Iterator[IO[bytes]]:
    if not archive.name.endswith(".zst"):
        import gzip  # noqa: PLC0415 - few bundles are archives

        with target.open("r+b") as file, gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as stream:
            yield cast("IO[bytes]", stream)
        return
    with target.open("r+b") as file:
        argv = ["zstd", "-q", "-T0", "-c", "-"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.PIPE) as process:
            assert process.stdin is not None
            try:
                yield process.stdin
                process.stdin.close()
                message = process.stderr.read() if process.stderr else b""
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            raise RecordError(f"zstd failed: {message.decode('utf-8', 'replace').strip()[:200]}")
