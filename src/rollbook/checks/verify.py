"""Is a record what it was when it was finished: every file listed, none changed, missing or added, each readable."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from rollbook.checks.model import Findings
from rollbook.errors import RecordError
from rollbook.mlpstorage.samples import TimeSeriesData
from rollbook.records.cluster import ClusterInformation
from rollbook.records.document import Snapshot, read
from rollbook.records.layout import Manifest, ManifestEntry
from rollbook.records.run import RunHosts
from rollbook.records.signing import Signature, check_signature, signature_file

__all__ = ["Problem", "Verified", "verify"]

Kind = Literal["changed", "missing", "added", "unreadable", "signature"]
MANIFEST = "manifest.json"
NEEDED = ("benchmark_type", "run_datetime", "num_processes", "parameters")
# Documents by how their names end.
SCHEMAS: dict[str, type] = {
    "_cluster_info.json": ClusterInformation,
    "_timeseries.json": TimeSeriesData,
    "findings.json": Findings,
    "hosts.json": RunHosts,
    "snapshot.json": Snapshot,
    MANIFEST: Manifest,
}


# What every table of the series begins with.
COLUMNS = {"host": "VARCHAR", "ts": "TIMESTAMP_NS", "mono": "BIGINT"}


class Problem(msgspec.Struct, frozen=True):
    """One thing that is not as the manifest says."""

    kind: Kind
    path: str
    why: str


class Verified(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.verified/1"):
    """What a verification found; without problems the record is what its manifest says."""

    path: str
    files: int
    bytes: int
    problems: list[Problem] = []
    signature: Signature | None = None


def verify(path: Path, allowed: Path | None = None) -> Verified:
    """Verify a record or a bundle that was unpacked; raises `RecordError` where there is no manifest to go by."""
    manifest = read(path / MANIFEST, Manifest)
    found = Verified(path=str(path), files=len(manifest.files), bytes=sum(entry.size for entry in manifest.files))
    listed = {entry.path: entry for entry in manifest.files}
    for entry in manifest.files:
        found.problems += _file(path, entry)
    own = {MANIFEST, signature_file(path / MANIFEST).name}
    found.problems += [
        Problem("added", name, "not in the manifest") for name in _names(path) if name not in listed and name not in own
    ]
    found.problems += [*_documents(path, set(listed)), *_tables(path, listed)]
    if signature_file(path / MANIFEST).exists():
        found.signature = check_signature(path / MANIFEST, allowed)
        if not found.signature.good:
            found.problems.append(Problem("signature", MANIFEST, found.signature.note))
    elif allowed is not None:
        found.problems.append(Problem("signature", MANIFEST, "there is no signature"))
    return found


def _file(root: Path, entry: ManifestEntry) -> Iterator[Problem]:
    parts = PurePosixPath(entry.path)
    # A manifest comes from elsewhere: it must not make us read outside the record.
    if parts.is_absolute() or ".." in parts.parts:
        yield Problem("unreadable", entry.path, "the name leads out of the record")
        return
    try:
        with (root / entry.path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        yield Problem("missing", entry.path, "listed in the manifest")
    except OSError as error:
        yield Problem("unreadable", entry.path, error.strerror or str(error))
    else:
        if size != entry.size:
            yield Problem("changed", entry.path, f"{size} bytes, {entry.size} in the manifest")
        elif digest != entry.sha256:
            yield Problem("changed", entry.path, f"SHA-256 is {digest[:16]}…, {entry.sha256[:16]}… in the manifest")


def _names(root: Path) -> Iterator[str]:
    """Every file below, links among them: a link is no file of a record."""
    for directory, _, files in os.walk(root):
        for name in sorted(files):
            yield Path(directory, name).relative_to(root).as_posix()


def _documents(root: Path, listed: set[str]) -> Iterator[Problem]:
    """JSON files at the top of the record that are not what their names promise."""
    metadata = [name for name in listed if name.endswith("_metadata.json")]
    for name in sorted(listed):
        if "/" in name or not name.endswith(".json") or not (root / name).is_file():
            continue
        kind = next((kind for end, kind in SCHEMAS.items() if name.endswith(end)), None)
        try:
            if kind is not None:
                read(root / name, kind)
            else:
                lacking = _lacking(root / name) if name in metadata else []
                if lacking:
                    yield Problem("unreadable", name, f"lacks {', '.join(lacking)}")
        except RecordError as error:
            yield Problem("unreadable", name, str(error))
        except ValueError as error:
            yield Problem("unreadable", name, f"not JSON: {error}")


def _tables(root: Path, listed: Iterable[str]) -> Iterator[Problem]:
    """Tables of the series that cannot be read, or do not begin as they do."""
    names = sorted(name for name in listed if PurePosixPath(name).match("series/*.parquet") and (root / name).is_file())
    if not names:
        return
    import duckdb  # noqa: PLC0415 - a snapshot has no tables

    with duckdb.connect() as connection:
        for name in names:
            try:
                found = connection.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(root / name)]).fetchall()
            except duckdb.Error as error:
                yield Problem("unreadable", name, str(error).split("\n")[0])
                continue
            if [(column[0], column[1]) for column in found[: len(COLUMNS)]] != list(COLUMNS.items()):
                yield Problem("unreadable", name, f"its columns do not begin with {', '.join(COLUMNS)}")


def _lacking(path: Path) -> list[str]:
    data = json.loads(path.read_bytes())
    return [key for key in NEEDED if not isinstance(data, dict) or key not in data]
