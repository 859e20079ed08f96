"""Reads the archive that a node made of its items, as untrusted input; see `agent/archive.py`."""

from __future__ import annotations

import contextlib
import gzip
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

from rollbook.bundle.items import Item
from rollbook.bundle.reading import LimitedStream, entries, header_limited
from rollbook.bundle.receive import NodeFiles
from rollbook.errors import AgentFailed

__all__ = ["LIST", "read_archive"]

LIST = "items.tsv"
"""The entry that lists what was read, from where, and how each item ended."""
LARGEST_LIST = 64 << 20
CHUNK = 1 << 20


def read_archive(path: Path, relative: str, items: Sequence[Item], files: NodeFiles, *, most: int) -> Iterator[None]:
    """Pass the files of an archive, whose entries lie below `relative`, to `files`; pauses after every chunk.

    The list of files becomes `items.tsv` of the node. Raises `AgentFailed` if the archive is damaged, has more than
    `most` bytes, or is not one that the agent makes, and the errors of `NodeFiles`.
    """
    try:
        listed = _List(_read_list(path, f"{relative}/{LIST}", most), items)
        with _opened(path, most) as (tar, stream):
            for entry in entries(tar, stream):
                if entry.name == f"{relative}/{LIST}":
                    continue
                number, file = listed.names.pop(entry.name.removeprefix(f"{relative}/"))
                files.take(listed.opens[number, file])
                content = tar.extractfile(entry)
                while content and (data := content.read(CHUNK)):
                    files.write(number, file, data)
                    yield
                for line in listed.rest.pop((number, file), ()):
                    files.take(line)
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, LookupError) as error:
        raise AgentFailed(f"the archive of the node is damaged: {error}") from error
    if listed.names:
        raise AgentFailed(f"the archive of the node is damaged: {min(listed.names)} is missing")
    for line in listed.done:
        files.take(line)
    files.keep(LIST, listed.text)


class _List:
    """The content of the list: for each file the frame that opens it and those that follow its content."""

    def __init__(self, text: bytes, items: Sequence[Item]) -> None:
        self.text = text
        self.names: dict[str, tuple[int, int]] = {}
        self.opens: dict[tuple[int, int], bytes] = {}
        self.rest: dict[tuple[int, int], list[bytes]] = {}
        self.done: list[bytes] = []
        for line in text.splitlines()[1:]:
            number, file, word, *fields = line.split(b"\t")
            if file == b"-":
                self.done.append(line)
                continue
            key = int(number), int(file)
            if word == b"open":
                self.names[f"{items[key[0]].id}/{fields[1].decode()}"] = key
                self.opens[key] = line
            elif word == b"log":
                head = b"\t".join((number, file, word))
                self.rest.setdefault(key, []).append(head + b"\n" + zlib.compress(b"\t".join(fields)))
            else:
                self.rest.setdefault(key, []).append(line)


def _read_list(path: Path, name: str, most: int) -> bytes:
    with _opened(path, most) as (tar, stream):
        for entry in entries(tar, stream):
            if not entry.isreg():
                raise tarfile.TarError(f"{entry.name} is not a regular file")
            if entry.name == name and entry.size <= LARGEST_LIST:
                content = tar.extractfile(entry)
                return content.read() if content else b""
    raise tarfile.TarError(f"it has no {LIST}")


@contextlib.contextmanager
def _opened(path: Path, most: int) -> Iterator[tuple[tarfile.TarFile, LimitedStream]]:
    """The archive and the stream that limits its headers."""
    with gzip.open(path, "rb") as file:
        limited = LimitedStream(cast("IO[bytes]", file), most, "it is larger than the limit of the node")
        stream = header_limited(cast("IO[bytes]", limited))
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as tar:
            yield tar, stream
        while limited.read(CHUNK):  # the checksum is at the end
            pass
