"""The data set of a training run is too small to count.

Why: It must last for 500 steps of every accelerator and be five times the memory of all clients, otherwise the page
cache is measured and not the storage.
Example: 714000 files, 1071000 needed: 5 × 19278.0 GiB measured / 114660 bytes per sample = …
Fix: Generate the missing files. The finding lists declared, limited and measured memory: if they disagree, the
declaration is wrong.
Reference: MLPerf Storage rules 3.1.2
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.dataset import dataset_size
from rollbook.checks.mlperf_clients import memory_of, require_all_memory
from rollbook.checks.mlperf_values import GIB, parameter, positive_integer
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-dataset-size", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Files of the run against files needed, with every number they are computed from."""
    require_type(run, "training")
    memory = memory_of(run)
    needed = dataset_size(run, memory)
    name = "dataset.num_files_train"
    files = positive_integer(parameter(run.metadata, name) or run.summary.get("num_files_train"), name)
    yield Compared(name, f">= {needed.files}", run.summary.get("num_files_train"), files)
    sizes = [None if size is None else round(size / GIB, 1) for size in (memory.measured, memory.declared)]
    yield Compared("memory of all clients, GiB", f"{needed.memory_origin} counts", *sizes)
    if files < needed.files:
        lines = [*needed.explained(), f"memory of {memory.hosts} clients: {memory.describe()}"]
        text = f"{files} files, {needed.files} needed: {'; '.join(lines)}"
        yield finding_for(Validation.INVALID, text, name, needed.files, files, explained=lines)
    elif needed.memory_origin == "measured":
        require_all_memory(run)
