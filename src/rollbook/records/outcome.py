"""What a benchmark's run was and what came out of it, as adapters report it and metadata stores it."""

from __future__ import annotations

from typing import Any

import msgspec

from rollbook.records.record import Phase

__all__ = ["Outcome"]


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
