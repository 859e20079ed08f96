"""A record on disk: its directory, whole files or none, and the manifest that lists them."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rollbook import times
from rollbook.errors import UsageError
from rollbook.files import write_file
from rollbook.records.cluster import ClusterInformation
from rollbook.records.document import Snapshot, encode, read, written_by
from rollbook.records.record import RecordHosts
from rollbook.records.signing import signature_file

__all__ = ["Leaf", "Manifest", "files_of", "must_lie_outside", "relist", "size_and_hash"]


class ManifestEntry(msgspec.Struct, frozen=True):
    """One file of the record."""

    path: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, tag_field="schema", tag="rollbook.manifest/1"):
    """Every file of a record but the manifest itself, by path."""

    files: list[ManifestEntry]
    rollbook: str = msgspec.field(default_factory=written_by)


class Leaf:
    """The directory of one run: `RESULTS/<type>/<YYYYMMDD_HHMMSS>/`."""

    def __init__(self, path: Path, kind: str, stamp: str) -> None:
        self.path, self.kind, self.stamp = path, kind, stamp

    @classmethod
    def make(cls, results: Path, kind: str, now: dt.datetime, parts: Sequence[str] = ()) -> Leaf:
        """A new directory; when two runs start in one second, the later takes the next free one.

        `parts` are the directories between the results and the stamp, by default the type alone.
        """
        for second in range(3600):
            stamp = times.stamp(now + dt.timedelta(seconds=second))
            path = results.joinpath(*(parts or (kind,)), stamp)
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                raise UsageError(f"cannot make {path}: {error.strerror}") from error
            return cls(path, kind, stamp)
        raise UsageError(f"no free name for a record under {results / kind}")

    def write(self, suffix: str, document: Any) -> Path:
        """A document named after the run: `<type>_<stamp>_<suffix>`."""
        path = self.path / f"{self.kind}_{self.stamp}_{suffix}"
        write_file(path, encode(document))
        return path

    def write_snapshot(self, snapshot: Snapshot, metadata: dict[str, Any]) -> None:
        """All files of a record that is a single snapshot."""
        cluster = ClusterInformation.of(snapshot.hosts)
        began = int(dt.datetime.fromisoformat(snapshot.created).timestamp()) * 10**9
        ended = time.time_ns()
        write_file(
            self.path / "hosts.json", encode(RecordHosts(started_ns=began, ended_ns=ended, start=snapshot.hosts))
        )
        self.write("cluster_info.json", cluster)
        self.write("metadata.json", {**metadata, "system_info": cluster, "cluster_information": cluster})
        self.write_manifest()

    def write_manifest(self) -> None:
        """List every file there is, with size and hash. A signature of what was listed before goes."""
        manifest = self.path / "manifest.json"
        signature_file(manifest).unlink(missing_ok=True)
        entries = []
        for name, path in files_of(self.path).items():
            # What a command left may be gone by now, or not be ours to read.
            with contextlib.suppress(OSError):
                if path != manifest:
                    entries.append(ManifestEntry(name, *size_and_hash(path)))
        write_file(manifest, encode(Manifest(entries)))


def must_lie_outside(record: Path, output: Path) -> None:
    """Raise `UsageError` for a place inside a record: what is written there would replace what the record holds."""
    if output.resolve().is_relative_to(record.resolve()):
        raise UsageError(f"{output} lies inside the record; write elsewhere")


def relist(record: Path, name: str) -> None:
    """Renew the entry of one file in a record's manifest; what is listed of the others is not looked at."""
    manifest = record / "manifest.json"
    listed = read(manifest, Manifest)
    others = [entry for entry in listed.files if entry.path != name]
    listed.files = sorted([*others, ManifestEntry(name, *size_and_hash(record / name))], key=lambda entry: entry.path)
    write_file(manifest, encode(listed))


def files_of(root: Path) -> dict[str, Path]:
    """Every file and link below a directory, by the name that a manifest has for it; what is neither is no part of it.

    A manifest is UTF-8, the name of a file need not be: its other bytes are written as a backslash and their number.
    """
    found: dict[str, Path] = {}
    for directory, below, names in os.walk(root):
        for path in (Path(directory, name) for name in (*below, *names)):
            if path.is_symlink() or path.is_file():
                found[os.fsencode(path.relative_to(root)).decode("utf-8", "backslashreplace")] = path
    return dict(sorted(found.items()))


def size_and_hash(path: Path) -> tuple[int, str]:
    """The bytes of a file and their SHA-256. A link is not followed: what it says is what is counted."""
    if path.is_symlink():
        said = os.fsencode(path.readlink())
        return len(said), hashlib.sha256(said).hexdigest()
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()
