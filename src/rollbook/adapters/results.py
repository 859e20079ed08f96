"""Files a run left behind: found, checked to be of this run, read with limits; what cannot be used becomes a note."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rollbook.adapters.argv import shown
from rollbook.adapters.base import Ran

__all__ = ["DECODER", "Results", "count", "rows", "storable", "table", "there"]

LIMIT = 64 << 20  # bytes of one result file
ENTRIES = 200_000  # directory entries looked at in a search: a data set may lie beside the results
DEPTH = 12  # mlpstorage puts its results eight directories down
# A file's time comes from the kernel's coarse clock, up to one tick behind the clock that timed the run; the clock
# of a file server may be ahead. Being generous at the start would let the file of the run before pass.
EARLY_NS, LATE_NS = 10_000_000, 2_000_000_000

# Python benchmarks write NaN and Infinity, which are no JSON: what was not measured is null.
DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def table(value: Any) -> dict[str, Any]:
    """The value where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def rows(value: Any) -> list[dict[str, Any]]:
    """The objects of a JSON array; none where the value is something else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def count(value: Any) -> int | None:
    """The value where it is a whole number that is not negative."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def there(path: Path) -> bool:
    """Whether it is a file, not a device or a pipe, which would keep us waiting."""
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a directory that we may not enter
        return False


def storable(value: Any) -> Any:
    """The value itself, where it can be written into a record; raises `ValueError` where it cannot."""
    try:
        msgspec.json.encode(value)
    except (TypeError, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    return value


class Results:
    """The result files of one run: `files` were read, `notes` say what was missing, old or unreadable."""

    def __init__(self, ran: Ran) -> None:
        self.ran = ran
        self.files: list[str] = []
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Say what was looked for and not found."""
        self.notes.append("".join(c if c.isprintable() else " " for c in shown(text)))

    def written(self, path: Path) -> int | None:
        """When the file was written, if that was during the run; an old file is never taken for a new one."""
        try:
            at = path.stat().st_mtime_ns
        except OSError:
            return None
        return at if self.ran.started_ns - EARLY_NS <= at <= self.ran.ended_ns + LATE_NS else None

    def text(self, path: Path) -> str | None:
        """The text of a file of this run."""
        if not there(path):
            self.note(f"{path} is not there")
            return None
        if self.written(path) is None:
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
        self.files.append(shown(str(path)))
        return data.decode("utf-8", "replace")

    def json(self, path: Path) -> dict[str, Any]:
        """The JSON object in a file of this run, empty where there is none."""
        text = self.text(path)
        if text is None:
            return {}
        try:
            value = storable(DECODER.decode(text))
        except (ValueError, RecursionError) as error:
            self.note(f"{path} is not JSON: {error}")
            return {}
        if not isinstance(value, dict):
            self.note(f"{path} is not a JSON object")
        return table(value)

    def yaml(self, path: Path) -> dict[str, Any]:
        """The YAML mapping in a file of this run, empty where there is none."""
        text = self.text(path)
        if text is None:
            return {}
        try:
            value = storable(msgspec.yaml.decode(text))
        except (msgspec.MsgspecError, ValueError, IndexError, RecursionError):
            self.note(f"{path} is not the YAML it should be")
            return {}
        return table(value)

    def newest(self, root: Path, *patterns: str) -> Path | None:
        """The newest file of this run below `root` whose name fits a pattern; says so where others fit too."""
        found = sorted(
            (at, path)
            for path in self._below(root)
            if _fits(path.name, patterns) and (at := self.written(path)) is not None
        )
        if len(found) > 1:
            self.note(f"{len(found)} files named {' or '.join(patterns)} below {root}; the newest is {found[-1][1]}")
        return found[-1][1] if found else None

    def _below(self, root: Path) -> Iterator[Path]:
        """Files below a directory, the near ones first; links are not followed, nor is our own record entered."""
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


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
