"""JSON documents with a schema id: written the same way every time, read back to equal values."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rollbook.errors import RecordError
from rollbook.records.cluster import ClusterInformation
from rollbook.records.hosts import Coverage, HostResult
from rollbook.version import __version__

__all__ = ["Snapshot", "encode", "no_collecting", "read", "written_by"]

D = TypeVar("D")


def written_by() -> str:
    """This version. As a field's default it is made, not stated: a default that is stated may be left out of JSON."""
    return __version__


class Snapshot(msgspec.Struct, kw_only=True, tag_field="schema", tag="rollbook.snapshot/1"):
    """The facts of every host asked for, at one time."""

    rollbook: str = msgspec.field(default_factory=written_by)
    created: str
    coverage: Coverage
    cluster: ClusterInformation
    hosts: list[HostResult]

    @classmethod
    def of(cls, created: str, hosts: list[HostResult]) -> Snapshot:
        """From host records; the cluster's own list of hosts is left out, since `hosts` has more."""
        cluster = ClusterInformation.of(hosts)
        cluster.hosts = []
        return cls(created=created, coverage=Coverage.of(hosts), cluster=cluster, hosts=hosts)


def encode(document: Any) -> bytes:
    """The document as indented JSON with a final newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


@contextlib.contextmanager
def no_collecting() -> Iterator[None]:
    """For many small objects none of which is garbage: to look for it would take much of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@no_collecting()
def read(path: Path, kind: type[D]) -> D:
    """A document back from its file, facts in their types."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=kind)
        for host in getattr(document, "hosts", []):
            if isinstance(host, HostResult):
                host.typed()
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from error
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecordError(f"{path} is not the document it should be: {error}") from error
    return document
