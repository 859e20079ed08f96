"""The accelerators of a training run waited too long for data.

Why: A result counts only if the storage keeps the emulated accelerators busy for the share that the workload requires.
Example: accelerator utilisation 84.2 %, 90 % required for unet3d
Fix: Use fewer accelerators, or more clients or faster storage.
Reference: MLPerf Storage rules 3.3; workload configurations
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_values import number, table, text_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-utilisation-low", "fail", (Benchmark,)
MEAN, WORD = "train_au_mean_percentage", "train_au_meet_expectation"


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The mean utilisation against the workload's, and DLIO's own verdict if the round uses it."""
    require_type(run, "training")
    rules, model = round_of(run), text_of(run, "model")
    if model not in rules.training.workload:
        raise CannotTell(f"round {rules.name} has no utilisation for {model}")
    metrics = table(run.summary.get("metric")) or table(run.metadata.get("metrics"))
    measured, required = number(metrics.get(MEAN), MEAN), 100 * rules.training.workload[model].utilisation
    yield Compared("accelerator utilisation, %", required, measured)
    if measured < required:
        text = f"accelerator utilisation {measured:.1f} %, {required:.0f} % required for {model}"
        yield finding_for(Validation.INVALID, text, MEAN, required, measured)
    if word := rules.training.summary_word:
        if not metrics.get(WORD):
            raise CannotTell(f"{WORD} is not recorded")
        yield Compared(WORD, word, metrics[WORD])
        if metrics[WORD] != word:
            text = f"DLIO reports {metrics[WORD]} for the utilisation, {word} is required"
            yield finding_for(Validation.INVALID, text, WORD, word, metrics[WORD])
