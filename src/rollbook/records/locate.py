"""What lies where a record was expected, in words that lead to the record that was meant."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import msgspec

from rollbook.errors import RecordError

__all__ = ["is_record", "no_record"]

NAMED = 3  # records below a directory that are offered
MOST = 2000  # directories looked into for them: a large tree is not searched to its end
SNAPSHOT = "a snapshot document; only check, diff and describe read it; `rollbook snapshot -o DIR` makes a record"


class _Headed(msgspec.Struct):
    """Any document of ours."""

    schema: str = ""


def is_record(path: Path) -> bool:
    """Whether a record lies there, whole or not; one whose recording has only begun is none yet."""
    return any(path.glob("*_metadata.json"))


def no_record(path: Path) -> RecordError:
    """The error for a path at which no record lies: what is there instead, and where records are."""
    if not path.exists():
        return RecordError(f"{path} does not exist")
    if not path.is_dir():
        return RecordError(f"{path} is {SNAPSHOT if _is_snapshot(path) else 'a file, and a record is a directory'}")
    if newest := _below(path)[:NAMED]:
        return RecordError(f"{path} is not a record; the newest below it: {', '.join(map(str, newest))}")
    return RecordError(f"{path} is not a record: it has no file named *_metadata.json")


def _is_snapshot(path: Path) -> bool:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Headed).schema.startswith("rollbook.snapshot/")
    except (OSError, msgspec.MsgspecError, RecursionError):
        return False


def _below(path: Path) -> list[Path]:
    """The records below a directory, newest first: each is called by the time of its start."""
    found = []
    for directory, below, _ in itertools.islice(os.walk(path), MOST):
        place = Path(directory)
        if (place / "hosts.json").exists() or any(place.glob("raw/*.seg")):  # an export has metadata, too
            found.append(place)
            below.clear()
    return sorted(found, key=lambda one: one.name, reverse=True)
