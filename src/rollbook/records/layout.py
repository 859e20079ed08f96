"""A record on disk: its directory, the names of its files, its permissions and its manifest."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rollbook import times
from rollbook.errors import RecordError, UsageError
from rollbook.files import write_file
from rollbook.records.cluster import ClusterInformation
from rollbook.records.document import current_version, encode, read
from rollbook.records.hosts import HostResult
from rollbook.records.locate import INSIDE, MANIFEST, RUN_DOCUMENT
from rollbook.records.reading import file_type, open_regular
from rollbook.records.record import RecordHosts
from rollbook.records.signing import signature_file

__all__ = [
    "Manifest",
    "ManifestEntry",
    "RecordDirectory",
    "list_files",
    "list_others",
    "require_outside",
    "size_and_hash",
    "update_manifest",
]


class ManifestEntry(msgspec.Struct, frozen=True):
    """One file of the record."""

    path: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, omit_defaults=True, tag_field="schema", tag="rollbook.manifest/1"):
    """Every file of a record except the manifest itself, by path.

    `others` are directories, FIFOs, sockets and devices: their paths, and what each is.
    """

    files: list[ManifestEntry]
    others: dict[str, str] = {}
    rollbook: str = msgspec.field(default_factory=current_version)


class RecordDirectory:
    """The directory of one record: `RESULTS/<type>/<YYYYMMDD_HHMMSS>/`."""

    def __init__(self, path: Path, kind: str, stamp: str) -> None:
        self.path, self.kind, self.stamp = path, kind, stamp

    @classmethod
    def create(
        cls, results: Path, kind: str, now: dt.datetime, parts: Sequence[str] = (), *, share: bool = False
    ) -> RecordDirectory:
        """Create a directory; when two runs start in the same second, the later one takes the next free second.

        `parts` are the directories between the results and the stamp, by default the type alone. Only the owner can
        read the record unless it is shared: then the umask decides.
        """
        parent = results.joinpath(*(parts or (kind,)))
        try:
            parent.mkdir(parents=True, exist_ok=True)
            for second in range(3600):
                stamp = times.stamp(now + dt.timedelta(seconds=second))
                with contextlib.suppress(FileExistsError):
                    (parent / stamp).mkdir(mode=0o777 if share else 0o700)
                    return cls(parent / stamp, kind, stamp)
        except OSError as error:
            raise UsageError(f"cannot create {parent}: {error.strerror}") from error
        raise UsageError(f"no free name for a record under {parent}")

    def file(self, suffix: str) -> Path:
        """The path of a document that is named after the record: `<type>_<stamp>_<suffix>`.

        Inside a result directory of MLPerf Storage's tool the names are such that no reader takes them for the tool's.
        """
        if self.path.name == INSIDE:
            return self.path / (RUN_DOCUMENT if suffix == "metadata.json" else f"rollbook_{suffix}")
        return self.path / f"{self.kind}_{self.stamp}_{suffix}"

    def write(self, suffix: str, document: Any) -> Path:
        """Write a document that is named after the record."""
        write_file(self.file(suffix), encode(document))
        return self.file(suffix)

    def write_snapshot(self, hosts: list[HostResult], began: dt.datetime, **more: Any) -> None:
        """Write hosts, cluster and metadata of a record that is a single snapshot; `more` is added to the metadata."""
        cluster, began_ns = ClusterInformation.of(hosts), int(began.timestamp()) * 10**9
        found = RecordHosts(started_ns=began_ns, ended_ns=time.time_ns(), start=hosts)
        write_file(self.path / "hosts.json", encode(found))
        self.write("cluster_info.json", cluster)
        metadata = {
            "benchmark_type": self.kind,
            "run_datetime": self.stamp,
            "num_processes": cluster.num_hosts,
            "parameters": {},
            "result_dir": str(self.path),
            **more,
            "system_info": cluster,
            "cluster_information": cluster,
        }
        self.write("metadata.json", metadata)

    def write_manifest(self) -> None:
        """List every file with size and hash, the last step of a record; removes a signature of the previous list."""
        manifest = self.path / MANIFEST
        signature_file(manifest).unlink(missing_ok=True)
        entries = []
        for name, path in list_files(self.path).items():
            # A file of the command may have been removed meanwhile, or be unreadable for us.
            with contextlib.suppress(OSError, RecordError):
                if path != manifest:
                    entries.append(ManifestEntry(name, *size_and_hash(path)))
        write_file(manifest, encode(Manifest(entries, list_others(self.path))))
        share_files(self.path)


def share_files(record: Path) -> None:
    """Give the files of a shared record, whose directory others may read, the permissions of that directory."""
    shared = record.stat().st_mode & 0o055
    if not shared:
        return
    for path in record.rglob("*"):
        with contextlib.suppress(OSError):  # a file of the command may belong to another user
            # The mode is changed through a descriptor: the path may become a symlink meanwhile.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                mode = os.fstat(descriptor).st_mode
                if stat.S_ISDIR(mode):
                    os.fchmod(descriptor, stat.S_IMODE(mode) | shared)
                elif stat.S_ISREG(mode):
                    os.fchmod(descriptor, stat.S_IMODE(mode) | shared & 0o044)
            finally:
                os.close(descriptor)


def require_outside(record: Path, output: Path) -> None:
    """Raise `UsageError` for an output inside the record, where it could replace files of the record."""
    if output.resolve().is_relative_to(record.resolve()):
        raise UsageError(f"{output} lies inside the record; write elsewhere")


def update_manifest(record: Path, name: str) -> None:
    """Update the entry of one file in a record's manifest; the other entries stay as they are."""
    manifest = record / MANIFEST
    found = read(manifest, Manifest)
    others = [entry for entry in found.files if entry.path != name]
    found.files = sorted([*others, ManifestEntry(name, *size_and_hash(record / name))], key=lambda entry: entry.path)
    write_file(manifest, encode(found))
    share_files(record)


def list_files(root: Path) -> dict[str, Path]:
    """Every regular file and symlink below a directory, by its name in a manifest.

    A manifest is UTF-8, file names need not be: other bytes are written as a backslash and their number.
    """
    return {name: path for name, (path, mode) in _entries(root).items() if stat.S_ISREG(mode) or stat.S_ISLNK(mode)}


def list_others(root: Path) -> dict[str, str]:
    """Everything below a directory that is neither a regular file nor a symlink, by name, and what each is."""
    return {
        name: file_type(mode)
        for name, (_, mode) in _entries(root).items()
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode))
    }


def _entries(root: Path) -> dict[str, tuple[Path, int]]:
    found: dict[str, tuple[Path, int]] = {}
    for directory, below, names in os.walk(root):
        for path in (Path(directory, name) for name in (*below, *names)):
            with contextlib.suppress(OSError):
                name = os.fsencode(path.relative_to(root)).decode("utf-8", "backslashreplace")
                found[name] = (path, path.lstat().st_mode)
    return dict(sorted(found.items()))


def size_and_hash(path: Path) -> tuple[int, str]:
    """Size and SHA-256 of a file. A symlink is not followed: the text of the link is hashed."""
    if path.is_symlink():
        target = os.fsencode(path.readlink())
        return len(target), hashlib.sha256(target).hexdigest()
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()
