"""A submission has too few or too many runs of a model.

Why: The result is the mean of a fixed number of runs. With fewer it is not stable, with more the best could be chosen.
Example: 5 runs, 6 required
Fix: Repeat the runs without a pause until there are as many as required; remove none of them.
Reference: MLPerf Storage rules 3.2, 4.2 and 5.2
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_runs import runs_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, round_of
from rollbook.checks.run_data import RunData, SeveralRuns
from rollbook.errors import NotApplicable
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-run-count", "fail", (SeveralRuns,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The number of measured runs against the limits of the round."""
    rules, runs = round_of(run), runs_of(run)
    limits: dict[str, tuple[int, int | None]] = {
        "training": (rules.training.minimum_runs, rules.training.maximum_runs),
        "checkpointing": (1, rules.checkpointing.maximum_runs),
    }
    if rules.vector_database.runs is not None:
        limits["vector_database"] = (rules.vector_database.runs, rules.vector_database.runs)
    if runs.type not in limits:
        raise NotApplicable(f"round {rules.name} does not prescribe a number of {runs.type} runs")
    count, (least, most) = len(runs.measured), limits[runs.type]
    required = f">= {least}" if most is None else f"{least}" if least == most else f"{least} to {most}"
    yield Compared("runs", required, count)
    if count < least or (most is not None and count > most):
        text = f"{count} runs, {required} required"
        yield finding_for(Validation.INVALID, text, "num_runs", required, count)
