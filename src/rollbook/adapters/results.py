"""Result files of a run: found, checked to be of this run, read with limits; unusable files become notes."""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from rollbook.adapters.argv import storable_text
from rollbook.adapters.base import Ran

__all__ = ["DECODER", "DLIO_FILE", "Results", "count", "rows", "storable", "table", "there"]

LIMIT = 64 << 20  # bytes of one result file
ENTRIES = 200_000  # directory entries visited in a search: a data set may lie beside the results
DEPTH = 12  # mlpstorage puts its results eight directories down
# A file's time comes from the kernel's coarse clock, up to one tick behind the clock that timed the run; the clock
# of a file server may be ahead. Being generous at the start would let the file of the run before pass.
EARLY_NS, LATE_NS = 10_000_000, 2_000_000_000

DLIO_FILE = re.compile(r"summary\.json|dlio\.log|(?:[0-9]{1,9}_)?(?:output|per_epoch_stats)\.json")
"""The names of DLIO's result files, of the run and of each rank."""

# Python benchmarks write NaN and Infinity, which is not JSON: such values become null.
DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def table(value: Any) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a JSON array; an empty list for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def count(value: Any) -> int | None:
    """Return the value if it is an integer of at least zero, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def there(path: Path) -> bool:
    """Whether it is a regular file: a device or a pipe could block."""
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a directory without permission
        return False


def storable(value: Any) -> Any:
    """Return the value if it can be stored in a record; raises `ValueError` otherwise."""
    try:
        msgspec.json.encode(value)
    except (TypeError, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    return value


class Results:
    """The result files of one run: `files` were read, `notes` list what was missing, old or unreadable."""

    def __init__(self, ran: Ran) -> None:
        self.ran = ran
        self.files: list[str] = []
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Add a note."""
        self.notes.append("".join(c if c.isprintable() else " " for c in storable_text(text)))

    def time_written(self, path: Path) -> int | None:
        """Return when the file was written if that was during the run, else None."""
        try:
            at = path.stat().st_mtime_ns
        except OSError:
            return None
        return at if self.ran.started_ns - EARLY_NS <= at <= self.ran.ended_ns + LATE_NS else None

    def text(self, path: Path) -> str | None:
        """Return the text of a file of this run; None, with a note, if it cannot be used."""
        if not there(path):
            self.note(f"{path} is not there")
            return None
        if self.time_written(path) is None:
            self.note(f"{path} was not written during this run and is left out")
            return None
        try:
            with path.open("rb") as file:
                data = file.read(LIMIT + 1)
        except OSError as error:
            self.note(f"{path}: {error.strerror}")
            return None
        if len(data) > LIMIT:
            self.note(f"{path} is larger than {LIMIT >> 20} MiB and is left out")
            return None
        self.files.append(storable_text(str(path)))
        return data.decode("utf-8", "replace")

    def json(self, path: Path) -> dict[str, Any]:
        """Return the JSON object in a file of this run; empty, with a note, if there is none."""
        return self._mapping(path, DECODER.decode, "not JSON: {}", "a JSON object")

    def yaml(self, path: Path) -> dict[str, Any]:
        """Return the YAML mapping in a file of this run; empty, with a note, if there is none."""
        from rollbook.records.yaml import decode_yaml  # noqa: PLC0415 - slow to import

        return self._mapping(path, lambda text: decode_yaml(text.encode()), "not valid YAML", "a YAML mapping")

    def _mapping(self, path: Path, decode: Callable[[str], Any], invalid: str, kind: str) -> dict[str, Any]:
        text = self.text(path)
        if text is None:
            return {}
        try:
            value = storable(decode(text))
        except (ValueError, RecursionError) as error:
            self.note(f"{path} is {invalid.format(error)}")
            return {}
        if not isinstance(value, dict):
            self.note(f"{path} is not {kind}")
        return table(value)

    def newest(self, root: Path, *patterns: str) -> Path | None:
        """Return the newest file of this run below `root` that matches a pattern; a note lists how many match."""
        found = sorted(
            (at, path)
            for path in self._below(root)
            if any(fnmatch.fnmatchcase(path.name, pattern) for pattern in patterns)
            and (at := self.time_written(path)) is not None
        )
        if len(found) > 1:
            self.note(f"{len(found)} files named {' or '.join(patterns)} below {root}; the newest is {found[-1][1]}")
        return found[-1][1] if found else None

    def _below(self, root: Path) -> Iterator[Path]:
        """Yield files below a directory, nearest first; symlinks and the record itself are skipped."""
        level, left = [root], ENTRIES
        for _ in range(DEPTH):
            deeper: list[Path] = []
            for directory in level:
                try:
                    with os.scandir(directory) as entries:
                        for entry in entries:
                            left -= 1
                            if left < 0:
                                self.note(f"the search below {root} ended after {ENTRIES} files")
                                return
                            if entry.is_dir(follow_symlinks=False):
                                deeper.append(Path(entry.path))
                            elif entry.is_file(follow_symlinks=False):
                                yield Path(entry.path)
                except OSError:
                    continue
            level = [path for path in deeper if path != self.ran.cwd / self.ran.leaf]
