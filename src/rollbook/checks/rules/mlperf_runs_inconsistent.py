"""Runs of one model in a submission differ in what they measured.

Why: Their results are averaged, so they must have the same model, processes, accelerator, hosts and overrides.
Example: runs differ in num_processes: 2; 4
Fix: Repeat the runs with one command line.
Reference: MLPerf Storage rules, submission checker
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rollbook.checks.mlperf_runs import ModelRun, runs_of
from rollbook.checks.mlperf_values import cluster_of, table
from rollbook.checks.mlperf_verdict import Validation, finding_for
from rollbook.checks.run_data import RunData, SeveralRuns
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-runs-inconsistent", "warn", (SeveralRuns,)
WITH_SUMMARY = ("training", "checkpointing")  # DLIO's summary has the number of hosts


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Each property that must be equal, with its values."""
    group = runs_of(run)
    if len(group.measured) < 2:
        raise NotApplicable("there are fewer than two runs")
    properties: dict[str, Callable[[ModelRun], Any]] = {
        "model": lambda one: one.metadata.get("model"),
        "accelerator": lambda one: one.metadata.get("accelerator"),
        "num_processes": lambda one: one.metadata.get("num_processes"),
        "number of hosts": _hosts,
        "overrides": lambda one: _overrides(group.type, one),
    }
    for what, value in properties.items():
        values = sorted({str(value(one)) for one in group.measured})
        yield Compared(f"{what} of the runs", "equal", values[0] if len(values) == 1 else values)
        if len(values) > 1:
            validation = Validation.INVALID if what == "model" else Validation.OPEN
            yield finding_for(validation, f"runs differ in {what}: {'; '.join(values)}", what, "equal", values)
    unknown = [one.name for one in group.measured if not _hosts(one) or not one.metadata.get("num_processes")]
    if unknown and group.type in WITH_SUMMARY:
        raise CannotTell(f"processes or hosts of {', '.join(unknown)} are not recorded")


def _hosts(one: ModelRun) -> Any:
    return one.summary.get("num_hosts") or cluster_of(one.metadata).get("num_hosts") or ""


def _overrides(kind: str, one: ModelRun) -> dict[str, Any]:
    """The overrides by name; writing and reading invocations of checkpointing differ in their counts by design."""
    changed = table(one.metadata.get("override_parameters"))
    counts = kind == "checkpointing"
    return {
        name: changed[name]
        for name in sorted(changed)
        if not (counts and name.startswith("checkpoint.num_checkpoints"))
    }
