"""What an adapter is: it knows where one benchmark leaves its results and what they are called in a record.

An adapter looks at what a finished command left behind and never raises for what it finds there: output that is
missing, old or broken becomes a note, and the record goes on without it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Protocol

import msgspec

from rollbook.records.run import Phase

__all__ = ["Adapter", "Outcome", "Ran"]


class Outcome(msgspec.Struct, kw_only=True):
    """What a run was and what came out of it, under the names of a record's metadata.

    `num_processes` is what the benchmark or its launcher says, one where neither does. Phases are in nanoseconds of
    the clock of the machine that ran the command. `notes` say in words what was looked for and not found.
    """

    benchmark_type: str
    model: str = ""
    command: str = ""
    accelerator: str = ""
    num_processes: int = 1
    parameters: dict[str, Any] = {}
    override_parameters: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    phases: list[Phase] = []
    result_files: list[str] = []
    notes: list[str] = []


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
