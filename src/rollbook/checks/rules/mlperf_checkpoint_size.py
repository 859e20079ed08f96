"""A checkpoint is so small that the clients' memory could hold it.

Why: A client that wrote less than three times its memory may read it back from its own page cache.
Example: 105.0 GB of checkpoint per host, 3 × 503.6 GiB of memory
Fix: Drop caches between writing and reading, or use a larger model or fewer hosts.
Reference: MLPerf Storage rules 4.3.1
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_clients import memory_of, require_all_memory
from rollbook.checks.mlperf_values import GIB, is_size
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-checkpoint-size", "warn", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The checkpoint's part of each host against the memory of a host."""
    require_type(run, "checkpointing")
    times = round_of(run).checkpointing.times_memory
    size, memory = checkpoint_gb(run), memory_of(run)
    if memory.effective is None or not memory.hosts:
        raise CannotTell("the memory of the clients is not recorded")
    each, needed = size / memory.hosts, times * memory.effective[1] / memory.hosts / GIB
    yield Compared("checkpoint per host, GB", f">= {needed:.1f}", round(each, 1))
    if each < needed:
        text = f"{each:.1f} GB of checkpoint per host, {times} × {needed / times:.1f} GiB of memory"
        required = f">= {needed:.1f}"
        yield finding_for(Validation.CLOSED, text, "checkpoint_size_GB", required, round(each, 1), severity="warning")
    elif memory.effective[0] == "measured":
        require_all_memory(run)


def checkpoint_gb(run: RunData) -> float:
    """Return the size of one checkpoint as DLIO reports it; raises `CannotTell` if it does not."""
    for place in (run.summary.get("metric"), run.summary, run.metadata.get("metrics")):
        size = place.get("checkpoint_size_GB") if isinstance(place, dict) else None
        if is_size(size):
            return float(size)
    raise CannotTell("checkpoint_size_GB is not in DLIO's summary")
