"""Verifies a finished record: no file is changed, missing, added or unreadable."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from rollbook.errors import RecordError
from rollbook.journal.state import is_unfinished, refuse_while_recording
from rollbook.records.cluster import ClusterInformation
from rollbook.records.document import Snapshot, read
from rollbook.records.findings import Findings
from rollbook.records.layout import Manifest, ManifestEntry, list_files, list_others, size_and_hash
from rollbook.records.locate import MANIFEST, RUN_DOCUMENT, is_record, not_a_record
from rollbook.records.reading import read_regular
from rollbook.records.record import RecordHosts
from rollbook.records.signing import Signature, check_signature, signature_file
from rollbook.records.timeseries import TimeSeriesData
from rollbook.tables.quoting import parquet

__all__ = ["NEEDED", "Problem", "Verified", "verify"]

Kind = Literal["changed", "missing", "added", "unreadable", "signature"]
NEEDED = ("benchmark_type", "run_datetime", "num_processes", "parameters")
# Document types by file name, and by the end of the file name.
NAMED: dict[str, type] = {"findings.json": Findings, "hosts.json": RecordHosts, "snapshot.json": Snapshot}
SCHEMAS: dict[str, type] = {"_cluster_info.json": ClusterInformation, "_timeseries.json": TimeSeriesData}
# The first columns of every table.
COLUMNS = {"host": "VARCHAR", "ts": "TIMESTAMP_NS", "mono": "BIGINT"}


class Problem(msgspec.Struct, frozen=True):
    """One difference from the manifest."""

    kind: Kind
    path: str
    why: str


class Verified(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.verified/1"):
    """The result of a verification; a record without problems matches its manifest."""

    path: str
    files: int
    bytes: int
    problems: list[Problem] = []
    signature: Signature | None = None


def verify(path: Path, allowed: Path | None = None) -> Verified:
    """Verify a record; raises `RecordError` if it has no manifest."""
    if not (path / MANIFEST).is_file():
        raise _no_manifest(path)
    manifest = read(path / MANIFEST, Manifest)
    found = Verified(path=str(path), files=len(manifest.files), bytes=sum(entry.size for entry in manifest.files))
    # A manifest is untrusted: only files inside the record are read.
    present, listed = list_files(path), {entry.path for entry in manifest.files}
    for entry in manifest.files:
        found.problems += _file(present.get(entry.path), entry)
    own = {MANIFEST, signature_file(path / MANIFEST).name}
    found.problems += [
        Problem("added", name, "not in the manifest") for name in present if name not in listed and name not in own
    ]
    found.problems += _other_entries(path, manifest)
    readable = {name: file for name, file in present.items() if name in listed and not file.is_symlink()}
    found.problems += [*_documents(readable), *_tables(readable)]
    if signature_file(path / MANIFEST).is_file():
        found.signature = check_signature(path / MANIFEST, allowed)
        if not found.signature.good:
            found.problems.append(Problem("signature", MANIFEST, found.signature.note))
    elif allowed is not None:
        found.problems.append(Problem("signature", MANIFEST, "not signed"))
    return found


def _other_entries(path: Path, manifest: Manifest) -> Iterator[Problem]:
    """Directories, FIFOs, sockets and devices that are not in the manifest; a listed file implies its directories."""
    known = {str(above) for entry in manifest.files for above in PurePosixPath(entry.path).parents}
    for name, what in list_others(path).items():
        if name not in known and manifest.others.get(name) != what:
            yield Problem("added", name, f"{what}, not in the manifest")


def _no_manifest(path: Path) -> RecordError:
    """The reason for a missing manifest, which is the last file written to a record."""
    refuse_while_recording(path)
    if is_unfinished(path):
        return RecordError(f"{path} is not finished; run `rollbook recover {shlex.quote(str(path))}`")
    return RecordError(f"{path / MANIFEST} does not exist") if is_record(path) else not_a_record(path)


def _file(path: Path | None, entry: ManifestEntry) -> Iterator[Problem]:
    if path is None:
        yield Problem("missing", entry.path, "listed in the manifest")
        return
    try:
        size, digest = size_and_hash(path)
    except (OSError, RecordError) as error:
        yield Problem("unreadable", entry.path, str(error))
        return
    if size != entry.size:
        yield Problem("changed", entry.path, f"{size} bytes, {entry.size} in the manifest")
    elif digest != entry.sha256:
        yield Problem("changed", entry.path, f"SHA-256 is {digest[:16]}…, {entry.sha256[:16]}… in the manifest")


def _documents(files: Mapping[str, Path]) -> Iterator[Problem]:
    """JSON files in the record directory that do not match their schema."""
    for name, path in files.items():
        if "/" in name:
            continue
        kind = NAMED.get(name) or next((kind for end, kind in SCHEMAS.items() if name.endswith(end)), None)
        try:
            if kind is not None:
                read(path, kind)
            elif (name.endswith("_metadata.json") or name == RUN_DOCUMENT) and (missing := _missing_keys(path)):
                yield Problem("unreadable", name, f"lacks {', '.join(missing)}")
        except RecordError as error:
            yield Problem("unreadable", name, str(error))
        except (OSError, ValueError, RecursionError) as error:
            yield Problem("unreadable", name, f"not JSON: {error}")


def _tables(files: Mapping[str, Path]) -> Iterator[Problem]:
    """Tables that cannot be read or have the wrong first columns."""
    tables = {name: path for name, path in files.items() if PurePosixPath(name).match("series/*.parquet")}
    if not tables:
        return
    import duckdb  # noqa: PLC0415 - a snapshot has no tables

    from rollbook.tables.reasons import UNREADABLE  # noqa: PLC0415

    with duckdb.connect() as connection:
        for name, path in tables.items():
            try:
                found = connection.execute(f"DESCRIBE FROM {parquet(path)}").fetchall()
            except UNREADABLE as error:
                yield Problem("unreadable", name, str(error).split("\n")[0])
                continue
            if [(column[0], column[1]) for column in found[: len(COLUMNS)]] != list(COLUMNS.items()):
                yield Problem("unreadable", name, f"its first columns are not {', '.join(COLUMNS)}")


def _missing_keys(path: Path) -> list[str]:
    data = json.loads(read_regular(path))
    return [key for key in NEEDED if not isinstance(data, dict) or key not in data]
