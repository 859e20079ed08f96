"""The checkpoint is smaller than three times the memory of the clients.

Why: A client may read such a checkpoint from its page cache instead of the storage.
Example: 105.0 GB of checkpoint per host, less than 3 × 503.6 GiB of memory
Fix: Drop caches between writing and reading, use a larger model, or use fewer hosts.
Reference: MLPerf Storage rules 4.3.1
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import GIB, Issue, Validation, finding_for, is_size, memory_of, require_all_memory
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-checkpoint-size", "warn", (Benchmark,)
TIMES_MEMORY = 3


def check(run: RunData) -> Iterator[Finding]:
    """Compare the checkpoint size per host with the memory per host."""
    if run.metadata.get("benchmark_type") != "checkpointing":
        raise NotApplicable("not a checkpointing run")
    size, memory = checkpoint_gb(run), memory_of(run)
    if memory.effective is None or not memory.hosts:
        raise CannotTell("the memory of the clients is unknown")
    each, needed = size / memory.hosts, TIMES_MEMORY * memory.effective[1] / memory.hosts / GIB
    if each < needed:
        memory_gib = needed / TIMES_MEMORY
        text = f"{each:.1f} GB of checkpoint per host, less than {TIMES_MEMORY} × {memory_gib:.1f} GiB of memory"
        issue = Issue(Validation.CLOSED, text, "checkpoint_size_GB", f">= {needed:.1f}", round(each, 1), "warning")
        yield finding_for(issue)
    elif memory.effective[0] == "measured":
        require_all_memory(run)


def checkpoint_gb(run: RunData) -> float:
    """The checkpoint size from DLIO's summary or from the metrics in the record's metadata."""
    for place in (run.summary.get("metric"), run.summary, run.metadata.get("metrics")):
        size = place.get("checkpoint_size_GB") if isinstance(place, dict) else None
        if is_size(size):
            return float(size)
    raise CannotTell("DLIO did not report checkpoint_size_GB")
