"""The data set of a training run is too small.

Why: It must be enough for 500 steps of every accelerator and be five times the memory of all clients. Otherwise the
run measures the page cache instead of the storage.
Example: 714000 files, 1071000 needed: 5 × 19278.0 GiB measured / 114660 bytes per sample = …
Fix: Generate the missing files. If declared and measured memory differ in the evidence, correct the declaration.
Reference: MLPerf Storage rules 3.1.2
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.dataset import dataset_size
from rollbook.checks.mlperf import (
    Issue,
    Validation,
    finding_for,
    memory_of,
    parameter,
    positive_integer,
    require_all_memory,
)
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import NotApplicable
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-dataset-size", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding]:
    """Compare the number of files with the required one, and explain the computation."""
    if run.metadata.get("benchmark_type") != "training":
        raise NotApplicable("not a training run")
    memory = memory_of(run)
    needed = dataset_size(run, memory)
    name = "dataset.num_files_train"
    files = positive_integer(parameter(run.metadata, name) or run.summary.get("num_files_train"), name)
    if files < needed.files:
        lines = [*needed.explain(), f"memory of {memory.hosts} clients: {memory.describe()}"]
        text = f"{files} files, {needed.files} needed: {'; '.join(lines)}"
        yield finding_for(Issue(Validation.INVALID, text, name, needed.files, files), explained=lines)
    elif needed.memory_origin == "measured":
        require_all_memory(run)
