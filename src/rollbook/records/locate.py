"""Finds the record that a path means, and explains what is there if it is not a record."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec

from rollbook.errors import RecordError
from rollbook.records.reading import UNDECODABLE, read_regular

__all__ = [
    "INSIDE",
    "LOGS",
    "MANIFEST",
    "RUN_DOCUMENT",
    "is_record",
    "locate_record",
    "metadata_files",
    "not_a_record",
    "repair_hint",
    "result_directory",
]

MANIFEST = "manifest.json"
LOGS = ("stdout.log", "stderr.log")
"""The output of the command of a run."""

INSIDE = "rollbook"
"""The directory of a record inside a result directory of MLPerf Storage's tool."""

RUN_DOCUMENT = "rollbook_run.json"
"""The metadata of such a record: readers of result directories take every other `*metadata*` file for the tool's."""

SUGGESTED = 3  # records below a directory that an error names
SEARCHED = 2000  # directories searched for records: a large tree is not searched completely
SNAPSHOT = "a snapshot document, which only check, diff and describe read; `rollbook snapshot -o DIR` writes a record"


class _Document(msgspec.Struct):
    """Any document of Rollbook."""

    schema: str = ""


def is_record(path: Path) -> bool:
    """Whether the directory holds a record, complete or not; one whose recording has just begun does not count."""
    return bool(metadata_files(path))


def result_directory(record: Path) -> Path:
    """The directory of the benchmark's own files: that of the record, or the one around it."""
    return record.parent if record.name == INSIDE else record


def metadata_files(path: Path) -> list[Path]:
    """The metadata files in a record directory; a complete record has exactly one."""
    inside = path / RUN_DOCUMENT
    return sorted(path.glob("*_metadata.json")) or ([inside] if inside.exists() else [])


def locate_record(path: Path) -> Path:
    """The record that a path means: itself, the one inside that result directory, or the only one below it.

    Returns the path unchanged if it is neither, so that opening it explains why.
    """
    if _holds_record(path) or not path.is_dir():
        return path
    if _holds_record(path / INSIDE):
        return path / INSIDE
    if is_record(path):
        return path
    found, complete = _records_below(path)
    return found[0] if complete and len(found) == 1 else path


def not_a_record(path: Path) -> RecordError:
    """The error for a path that is not a record: what it is instead, and which records lie below it."""
    if not path.exists():
        return RecordError(f"{path} does not exist")
    if not path.is_dir():
        return RecordError(f"{path} is {SNAPSHOT if _is_snapshot(path) else 'a file; a record is a directory'}")
    if _holds_record(path):
        return RecordError(f"{path} has no file named *_metadata.json; {repair_hint(path)}")
    found, _ = _records_below(path)
    if newest := found[:SUGGESTED]:
        return RecordError(f"{path} is not a record; the newest below it: {', '.join(map(str, newest))}")
    return RecordError(f"{path} is not a record: it has no file named *_metadata.json")


def repair_hint(path: Path) -> str:
    """The command that repairs a damaged record, or that lists the damage if the record has no journal."""
    quoted = shlex.quote(str(path))
    if any(path.glob("raw/*.seg")):
        return f"`rollbook recover {quoted}` rebuilds it from the journal"
    return f"`rollbook verify {quoted}` lists what is damaged"


def _is_snapshot(path: Path) -> bool:
    try:
        return msgspec.json.decode(read_regular(path), type=_Document).schema.startswith("rollbook.snapshot/")
    except (RecordError, *UNDECODABLE):
        return False


def _holds_record(path: Path) -> bool:
    # An export has metadata, too.
    return (path / "hosts.json").exists() or any(path.glob("raw/*.seg"))


def _records_below(path: Path) -> tuple[list[Path], bool]:
    """The records below a directory, newest first (their names are their start times), and whether all were found."""
    found, searched = [], 0
    for directory, below, _ in os.walk(path):
        searched += 1
        if searched > SEARCHED:
            break
        if _holds_record(Path(directory)):
            found.append(Path(directory))
            below.clear()
    return sorted(found, key=lambda one: one.name, reverse=True), searched <= SEARCHED
