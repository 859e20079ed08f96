"""The interface of adapters: an adapter finds the results of one benchmark and names them for a record.

It reads the files of a command that has ended and never raises because of their content: output that is missing, old or
broken becomes a note.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Protocol

from rollbook.records.outcome import Outcome

__all__ = ["Adapter", "Ran"]


@dataclasses.dataclass(frozen=True)
class Ran:
    """A command that has ended: its arguments, directory, times, logs and record directory (`leaf`).

    `code` is its exit status; None if the recording broke off before it ended, and `ended_ns` is the end of that.
    """

    argv: list[str]
    cwd: Path
    leaf: Path
    stdout: Path
    stderr: Path
    started_ns: int
    ended_ns: int
    code: int | None


class Adapter(Protocol):
    """The adapter of one benchmark."""

    @property
    def name(self) -> str:
        """The name for `--type`."""

    def outcome(self, ran: Ran) -> Outcome:
        """Return parameters and results of the run; never raises because of the benchmark's files."""
