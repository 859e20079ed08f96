"""What an adapter is: it knows where one benchmark leaves its results and what they are called in a record.

An adapter looks at what a finished command left behind and never raises for what it finds there: output that is
missing, old or broken becomes a note, and the record goes on without it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Protocol

from rollbook.records.outcome import Outcome

__all__ = ["Adapter", "Ran"]


@dataclasses.dataclass(frozen=True)
class Ran:
    """A command that has ended: what was run, where, when, and where its output and its record lie."""

    argv: list[str]
    cwd: Path
    leaf: Path
    stdout: Path
    stderr: Path
    started_ns: int
    ended_ns: int
    code: int


class Adapter(Protocol):
    """One benchmark known by name."""

    @property
    def name(self) -> str:
        """The word for `--type`."""

    def outcome(self, ran: Ran) -> Outcome:
        """What came out of the run; never raises for what the benchmark left behind."""
