"""The accelerator type is not part of the round, or has no workload for the model.

Why: Batch size and computation time depend on the emulated accelerator; each round defines which ones count.
Example: accelerator h100 is not in CLOSED of round 2026-07: b200, mi355
Fix: Choose an accelerator type of the round.
Reference: MLPerf Storage rules, workloads
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_values import text_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-accelerator-unknown", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Compare the accelerator with those of the round and of the workload."""
    require_type(run, "training")
    rules = round_of(run)
    value = text_of(run, "accelerator", "accelerator_type").lower()
    closed = rules.training.closed_accelerators
    yield Compared("accelerator", closed, declared=value)
    workload = rules.training.workload.get(str(run.metadata.get("model")))
    if value not in (*closed, *rules.training.open_accelerators):
        text = f"accelerator {value} is not in round {rules.name}: {', '.join(closed)}"
        yield finding_for(Validation.INVALID, text, "accelerator", closed, value)
    elif workload is not None and value not in workload.batch_size:
        text = f"round {rules.name} has no {run.metadata['model']} workload for {value}"
        yield finding_for(Validation.INVALID, text, "accelerator", list(workload.batch_size), value)
    elif value not in closed:
        text = f"accelerator {value} is not in CLOSED of round {rules.name}: {', '.join(closed)}"
        yield finding_for(Validation.OPEN, text, "accelerator", closed, value, severity="warning")
