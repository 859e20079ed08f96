"""A checkpointing run has a number of processes that its division does not allow.

Why: The number of processes stands for the accelerators of the model's parallel layout; a subset of 8 processes stands
for one node of it.
Example: 32 processes for llama3-70b: CLOSED needs 64, or 8 in subset mode; OPEN a multiple of 8
Fix: Use the number of processes of the model.
Reference: MLPerf Storage rules 4.3
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_values import parameter, positive_integer, text_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-checkpoint-processes", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Processes against the model's, and against the size of a subset."""
    require_type(run, "checkpointing")
    rules, name = round_of(run).checkpointing, text_of(run, "model")
    model = rules.model.get(name)
    if model is None:
        raise CannotTell(f"there is no process count for {name}")
    processes = positive_integer(run.metadata.get("num_processes"), "num_processes")
    subset = parameter(run.metadata, "checkpoint.mode") == "subset"
    closed = f"{model.closed_processes}" + f", or {rules.subset_processes} in subset mode" * model.subset
    yield Compared("processes", closed, declared=f"{processes}{' in subset mode' * subset}")
    wanted = model.closed_processes
    if subset:
        wanted = rules.subset_processes if model.subset else 0
    if processes != wanted:
        # The tool itself sets subset mode for every number below that of CLOSED.
        fits = processes % model.open_multiple == 0 and not (subset and processes >= model.closed_processes)
        what = f"subset mode with {processes} processes" if subset else f"{processes} processes"
        text = f"{what} for {name}: CLOSED needs {closed}; OPEN a multiple of {model.open_multiple}"
        yield finding_for(Validation.OPEN if fits else Validation.INVALID, text, "num_processes", closed, processes)
