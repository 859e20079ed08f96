"""Is a record what it was when it was finished: every file listed, none changed, missing or added, each readable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from rollbook.errors import RecordError
from rollbook.journal.log import must_be_over, unfinished
from rollbook.records.cluster import ClusterInformation
from rollbook.records.document import Snapshot, read
from rollbook.records.findings import Findings
from rollbook.records.layout import Manifest, ManifestEntry, list_files, list_others, size_and_hash
from rollbook.records.locate import is_record, not_a_record
from rollbook.records.reading import read_regular
from rollbook.records.record import RecordHosts
from rollbook.records.signing import Signature, check_signature, signature_file
from rollbook.records.timeseries import TimeSeriesData
from rollbook.tables.quoting import parquet

__all__ = ["Problem", "Verified", "verify"]

Kind = Literal["changed", "missing", "added", "unreadable", "signature"]
MANIFEST = "manifest.json"
NEEDED = ("benchmark_type", "run_datetime", "num_processes", "parameters")
# Documents by name, and by how their names end.
NAMED: dict[str, type] = {"findings.json": Findings, "hosts.json": RecordHosts, "snapshot.json": Snapshot}
SCHEMAS: dict[str, type] = {"_cluster_info.json": ClusterInformation, "_timeseries.json": TimeSeriesData}
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
    """Verify a record; raises `RecordError` where there is no manifest to go by."""
    if not (path / MANIFEST).is_file():
        raise _no_manifest(path)
    manifest = read(path / MANIFEST, Manifest)
    found = Verified(path=str(path), files=len(manifest.files), bytes=sum(entry.size for entry in manifest.files))
    # A manifest comes from elsewhere: only what lies in the record is read, whatever the manifest names.
    there, listed = list_files(path), {entry.path for entry in manifest.files}
    for entry in manifest.files:
        found.problems += _file(there.get(entry.path), entry)
    own = {MANIFEST, signature_file(path / MANIFEST).name}
    found.problems += [
        Problem("added", name, "not in the manifest") for name in there if name not in listed and name not in own
    ]
    found.problems += _other_entries(path, manifest)
    whole = {name: file for name, file in there.items() if name in listed and not file.is_symlink()}
    found.problems += [*_documents(whole), *_tables(whole)]
    if signature_file(path / MANIFEST).is_file():
        found.signature = check_signature(path / MANIFEST, allowed)
        if not found.signature.good:
            found.problems.append(Problem("signature", MANIFEST, found.signature.note))
    elif allowed is not None:
        found.problems.append(Problem("signature", MANIFEST, "there is no signature"))
    return found


def _other_entries(path: Path, manifest: Manifest) -> Iterator[Problem]:
    """Directories, FIFOs, sockets and devices that are not in the manifest; a listed file implies its directories."""
    known = {str(above) for entry in manifest.files for above in PurePosixPath(entry.path).parents}
    for name, what in list_others(path).items():
        if name not in known and manifest.others.get(name) != what:
            yield Problem("added", name, f"{what}, not in the manifest")


def _no_manifest(path: Path) -> RecordError:
    """Why there is none: the manifest is the last file of a record that is written."""
    must_be_over(path)
    if unfinished(path):
        return RecordError(f"{path} was never finished; `rollbook recover` does that")
    return RecordError(f"{path / MANIFEST} is not there") if is_record(path) else not_a_record(path)


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
    """JSON files at the top of the record that are not what their names promise."""
    for name, path in files.items():
        if "/" in name:
            continue
        kind = NAMED.get(name) or next((kind for end, kind in SCHEMAS.items() if name.endswith(end)), None)
        try:
            if kind is not None:
                read(path, kind)
            elif name.endswith("_metadata.json") and (lacking := _lacking(path)):
                yield Problem("unreadable", name, f"lacks {', '.join(lacking)}")
        except RecordError as error:
            yield Problem("unreadable", name, str(error))
        except (OSError, ValueError, RecursionError) as error:
            yield Problem("unreadable", name, f"not JSON: {error}")


def _tables(files: Mapping[str, Path]) -> Iterator[Problem]:
    """Tables of the series that cannot be read, or do not begin as they do."""
    tables = {name: path for name, path in files.items() if PurePosixPath(name).match("series/*.parquet")}
    if not tables:
        return
    import duckdb  # noqa: PLC0415 - a snapshot has no tables

    with duckdb.connect() as connection:
        for name, path in tables.items():
            try:
                found = connection.execute(f"DESCRIBE FROM {parquet(path)}").fetchall()
            except duckdb.Error as error:
                yield Problem("unreadable", name, str(error).split("\n")[0])
                continue
            if [(column[0], column[1]) for column in found[: len(COLUMNS)]] != list(COLUMNS.items()):
                yield Problem("unreadable", name, f"its columns do not begin with {', '.join(COLUMNS)}")


def _lacking(path: Path) -> list[str]:
    data = json.loads(read_regular(path))
    return [key for key in NEEDED if not isinstance(data, dict) or key not in data]
