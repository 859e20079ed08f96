"""Reads an issue report as untrusted input: every limit is checked, no link is followed, logs are streamed.

Whoever sends a bundle controls its bytes: `summary.json` may name any path, a file may be a FIFO or a link, a line may
have gigabytes. Files are opened component by component without following links, text is read up to a limit, and a log
is read in chunks that end at a line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

import msgspec

from rollbook.bundle.summary import BundleSummary, File, ItemResult
from rollbook.errors import RecordError, UsageError
from rollbook.files import temporary_directory
from rollbook.records.reading import UNDECODABLE, open_regular, read_regular

__all__ = [
    "ARCHIVES",
    "LARGEST_TEXT",
    "Bundle",
    "Chunk",
    "LimitedStream",
    "archive_suffix",
    "entries",
    "header_limited",
    "is_bundle",
    "unpack",
]

SUMMARY = "summary.json"
LARGEST_SUMMARY = 256 << 20
LARGEST_TEXT = 16 << 20
"""Bytes of a file that rules compare as a whole."""
CHUNK = 1 << 20
ARCHIVES = (".tar.zst", ".tar.gz", ".tgz")
LARGEST_ARCHIVE = 64 << 30
MAX_FILES = 2_000_000
LARGEST_HEADER = 1 << 20
SPARE = 1 << 30  # bytes of the disk that unpacking leaves free
PARTS = ("nodes", "cluster")


class Chunk(NamedTuple):
    """Whole lines of a log. A line longer than a chunk is cut into several lines with the same number."""

    line: int
    """The number of the first line, from 1."""
    data: bytes


class Bundle:
    """An issue report on disk. Raises `RecordError` if `summary.json` is missing or invalid."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        data = read_regular(directory / SUMMARY, LARGEST_SUMMARY)
        try:
            self.summary = msgspec.json.decode(data, type=BundleSummary)
        except UNDECODABLE as error:
            raise RecordError(f"{directory / SUMMARY} is not the summary of an issue report: {error}") from error
        self.nodes: dict[str, dict[str, ItemResult]] = {
            node.node: {item.id: item for item in node.items} for node in self.summary.results
        }
        self.read_at = {node.node: node.ended or self.summary.timestamp for node in self.summary.results}
        """When each node was read; a bundle may be resumed long after its start."""
        self.cluster: dict[str, ItemResult] = {item.id: item for item in self.summary.cluster}

    def text(self, file: File) -> str:
        """The content of a file, cut at `LARGEST_TEXT` bytes; raises `RecordError` if it cannot be read."""
        with self._open(file) as opened:
            return _read(opened, LARGEST_TEXT, file.path).decode("utf-8", "replace")

    def chunks(self, file: File) -> Iterator[Chunk]:
        """The lines of a file in chunks; raises `RecordError` if it cannot be read."""
        with self._open(file) as opened:
            number, rest = 1, b""
            while data := _read(opened, CHUNK, file.path):
                data = rest + data
                end = data.rfind(b"\n") + 1
                if not end and len(data) < CHUNK:
                    rest = data
                    continue
                chunk, rest = (data[:end], data[end:]) if end else (data, b"")
                yield Chunk(number, chunk)
                number += chunk.count(b"\n")
            if rest:
                yield Chunk(number, rest)

    def _open(self, file: File) -> BufferedReader:
        """Open a file below `nodes` or `cluster`, no component of its path being a link."""
        parts = PurePosixPath(file.path).parts
        if len(parts) < 2 or parts[0] not in PARTS or ".." in parts or "\0" in file.path:
            raise RecordError(f"{file.path!r} in {SUMMARY} is not a path inside the bundle")
        with contextlib.ExitStack() as stack:
            try:
                at = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, at)
                for part in parts[:-1]:
                    at = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
                    stack.callback(os.close, at)
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(parts[-1], flags, dir_fd=at)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                raise RecordError(f"{file.path}: {reason}") from error
            opened = os.fdopen(descriptor, "rb")
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                opened.close()
                raise RecordError(f"{file.path} is not a regular file")
            return opened


def _read(opened: BufferedReader, size: int, path: str) -> bytes:
    try:
        return opened.read(size)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error


def is_bundle(path: Path) -> bool:
    """Whether a directory holds an issue report, by the schema that its summary names."""
    try:
        with open_regular(path / SUMMARY) as file:
            head = file.read(4096)
    except (RecordError, OSError, ValueError):
        return False
    return str(BundleSummary.__struct_config__.tag).encode() in head


def archive_suffix(path: Path) -> str:
    """The suffix of an archive's name; empty for a directory."""
    return next((suffix for suffix in ARCHIVES if path.name.endswith(suffix)), "")


def unpack(archive: Path, target: Path) -> Path:
    """Unpack an archived bundle into `target`, which must not exist; returns the directory of the bundle.

    `target` appears when everything is unpacked. Only regular files and directories below it are created, readable for
    the owner only. Raises `RecordError` for anything else in the archive, for one that is damaged, and for one that
    would fill the disk, and `UsageError` if the program that decompresses it is not installed.
    """
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with temporary_directory(target.parent) as scratch, _opened(archive) as opened:
            stream = header_limited(opened)
            parts = scratch / "parts"
            parts.mkdir(mode=0o700)
            free = shutil.disk_usage(parts).free - SPARE
            with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as tar:
                _extract(tar, stream, parts, min(LARGEST_ARCHIVE, free))
            while stream.read(CHUNK):  # the checksum is at the end
                pass
            found = [path.relative_to(parts) for path in (parts, *sorted(parts.iterdir())) if is_bundle(path)]
            if not found:
                raise RecordError(f"{archive} does not contain an issue report")
            parts.rename(target)
    except (OSError, tarfile.TarError, EOFError, ValueError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecordError(f"cannot unpack {archive} to {target}: {reason}") from error
    return target / found[0]


class LimitedStream:
    """A stream of which only `left` bytes may be read; then `ValueError` is raised with the message."""

    def __init__(self, stream: IO[bytes], left: int, message: str) -> None:
        self._stream, self.left, self._message = stream, left, message

    def read(self, size: int) -> bytes:
        """Read; raises `ValueError` at the limit."""
        data = self._stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(self._message)
        return data


def header_limited(stream: IO[bytes]) -> LimitedStream:
    """A stream for `entries`; `tarfile` holds every header in memory, whatever its size."""
    return LimitedStream(stream, LARGEST_HEADER, "an entry has a header of more than 1 MiB")


def entries(tar: tarfile.TarFile, stream: LimitedStream) -> Iterator[tarfile.TarInfo]:
    """The entries of an archive that is read from `stream`, none of which is kept in memory.

    Raises `ValueError` for a header of more than 1 MiB or a negative size, and `TarError` for a damaged archive.
    """
    while True:
        member = tar.next()
        if member is None:
            return
        # It would keep all of them.
        tar.members.clear()  # type: ignore[attr-defined]
        tar.pax_headers = {}
        if member.size < 0:
            raise ValueError(f"{member.name!r} has a negative size")
        stream.left += member.size
        yield member
        # What was not read of the entry is skipped in small pieces, and must not add to the limit of the next header.
        stream.left = sys.maxsize
        cast("IO[bytes]", tar.fileobj).seek(tar.offset)
        stream.left = LARGEST_HEADER


def _extract(tar: tarfile.TarFile, stream: LimitedStream, target: Path, budget: int) -> None:
    for count, member in enumerate(entries(tar, stream)):
        parts = [part for part in PurePosixPath(member.name).parts if part != "."]
        if count >= MAX_FILES:
            raise ValueError(f"more than {MAX_FILES} entries")
        if ".." in parts or "/" in parts or not (member.isreg() or member.isdir()):
            raise ValueError(f"{member.name!r} is a link, a device or outside of the archive")
        path = target.joinpath(*parts)
        if member.isdir():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            continue
        budget -= member.size
        if budget < 0:
            raise ValueError("larger than the limit or the free disk space")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        source = tar.extractfile(member)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            shutil.copyfileobj(cast("IO[bytes]", source), file, CHUNK)


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[IO[bytes]]:
    """The archive, decompressed, to be read to its end; raises `ValueError` if zstd finds it damaged.

    `zstd` is a program, because Python has the format only from 3.14 on.
    """
    if archive.name.endswith(".zst"):
        if shutil.which("zstd") is None:
            raise UsageError(f"reading {archive} needs the program zstd, which is not installed")
        argv = ["zstd", "-dcq", "--", str(archive)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            try:
                yield cast("IO[bytes]", process.stdout)
                if process.wait():
                    raise ValueError("zstd reports that it is damaged")
            finally:
                process.kill()
        return
    import gzip  # noqa: PLC0415 - few bundles are archives

    with open_regular(archive) as raw, gzip.open(raw, "rb") as stream:
        yield cast("IO[bytes]", stream)
