"""JSON documents with a schema id: written the same way every time, read back to equal values."""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rollbook.errors import RecordError
from rollbook.records.cluster import ClusterInformation
from rollbook.records.hosts import Coverage, HostResult
from rollbook.records.reading import UNDECODABLE, read_regular
from rollbook.version import __version__

__all__ = ["Snapshot", "current_version", "encode", "escaped", "read", "without_gc"]

D = TypeVar("D")
OBEYED = re.compile("[\u0080-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")  # C1, and of direction


def current_version() -> str:
    """The version that writes a document. As a default factory it is always written; a plain default may be omitted."""
    return __version__


class Snapshot(msgspec.Struct, kw_only=True, tag_field="schema", tag="rollbook.snapshot/1"):
    """The facts of every requested host, at one time."""

    rollbook: str = msgspec.field(default_factory=current_version)
    created: str
    coverage: Coverage
    cluster: ClusterInformation
    hosts: list[HostResult]

    @classmethod
    def of(cls, created: str, hosts: list[HostResult]) -> Snapshot:
        """From host results; the cluster's own list of hosts is omitted because `hosts` has more."""
        cluster = ClusterInformation.of(hosts)
        cluster.hosts = []
        return cls(created=created, coverage=Coverage.of(hosts), cluster=cluster, hosts=hosts)


def encode(document: Any) -> bytes:
    """Encode a document as indented JSON with a final newline; see `escaped`."""
    return escaped(msgspec.json.format(msgspec.json.encode(document), indent=1)) + b"\n"


def escaped(json: bytes) -> bytes:
    """The JSON with those control characters escaped, too, that JSON permits but a terminal would obey."""
    if json.isascii():
        return json
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.decode()).encode()


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Pause the garbage collector while many objects are created that stay alive: it would take most of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@without_gc()
def read(path: Path, kind: type[D]) -> D:
    """Read a document from a regular file, facts in their types; raises `RecordError`."""
    data = read_regular(path)
    try:
        document = msgspec.json.decode(data, type=kind)
        for host in getattr(document, "hosts", []):
            if isinstance(host, HostResult):
                host.convert_facts()
    except UNDECODABLE as error:
        raise RecordError(f"{path} is not a valid document: {error}") from error
    return document
