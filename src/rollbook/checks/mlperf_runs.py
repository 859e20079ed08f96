"""All runs of one model on one system, as the rules over several runs of a submission see them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from rollbook.checks.mlperf_values import is_size, parameter, seconds_between, time_of
from rollbook.checks.mlperf_verdict import is_measured_run
from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.times import from_stamp

__all__ = ["ModelRun", "ModelRuns", "runs_of"]


class ModelRun(msgspec.Struct, kw_only=True):
    """One of the runs: the name of its directory, its metadata and summary, and its own verdict."""

    name: str
    metadata: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    verdict: str | None = None

    @property
    def began(self) -> dt.datetime:
        """The local time in its name; raises `CannotTell` if it has none."""
        for text in (self.name, str(self.metadata.get("run_datetime") or "")):
            try:
                return from_stamp(text)
            except ValueError:
                continue
        raise CannotTell(f"{self.name} is not a time stamp")

    @property
    def seconds(self) -> float:
        """How long it ran; raises `CannotTell` if that is not recorded."""
        runtime = self.metadata.get("runtime")
        if is_size(runtime) and runtime:
            return float(runtime)
        start, end = (time_of(self.summary.get(name)) for name in ("start", "end"))
        if start is None or end is None:
            raise CannotTell(f"the run time of {self.name} is not recorded")
        return seconds_between(start, end)

    @property
    def files(self) -> int:
        """The number of files of its data set; raises `CannotTell` if that is not recorded."""
        try:
            return int(parameter(self.metadata, "dataset.num_files_train"))
        except (TypeError, ValueError):
            raise CannotTell(f"dataset.num_files_train of {self.name} is not recorded") from None


class ModelRuns(msgspec.Struct, kw_only=True):
    """All runs of one model on one system, also those that prepare."""

    type: str
    runs: list[ModelRun]

    @property
    def measured(self) -> list[ModelRun]:
        """The runs whose results count, in the order of their times."""
        return sorted((run for run in self.runs if is_measured_run(run.metadata)), key=lambda run: run.name)

    def of_command(self, command: str) -> list[ModelRun]:
        """The runs of one command."""
        return [run for run in self.runs if run.metadata.get("command") == command]


def runs_of(run: RunData, *types: str) -> ModelRuns:
    """Return the runs to judge together; raises `NotApplicable` unless they are of one of these benchmark types."""
    if run.runs is None or (types and run.runs.type not in types):
        raise NotApplicable(f"not {' or '.join(types)}")
    return run.runs
