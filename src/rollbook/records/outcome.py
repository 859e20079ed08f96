"""Parameters and results of a benchmark, as adapters report them and metadata stores them."""

from __future__ import annotations

from typing import Any

import msgspec

from rollbook.records.record import Phase

__all__ = ["Outcome"]


class Outcome(msgspec.Struct, kw_only=True):
    """Parameters and results of a run, under the names of a record's metadata.

    `num_processes` comes from the benchmark or its launcher, one if neither has it. Phases are in nanoseconds of the
    clock of the machine that ran the command. `summary` is DLIO's, `args` are the benchmark's own arguments. `notes`
    list what was expected and not found.
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
    summary: dict[str, Any] = {}
    args: dict[str, Any] = {}
    notes: list[str] = []
