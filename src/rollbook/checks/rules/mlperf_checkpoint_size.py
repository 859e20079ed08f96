"""A checkpoint is so small that the clients' memory could hold it.

Why: A client that wrote less than three times its memory may read it back from its own page cache.
Example: 105.0 GB of checkpoint a host, 3 × 503.6 GiB of memory
Fix: Drop caches between writing and reading, or use a larger model or fewer hosts.
Reference: MLPerf Storage rules 4.3.1
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import GIB, Issue, Validation, finding, memory_of, need_all_memory, sized
from rollbook.checks.subject import Benchmark, Subject
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-checkpoint-size", "warn", (Benchmark,)
TIMES_MEMORY = 3


def check(run: Subject) -> Iterator[Finding]:
    """The checkpoint's part of each host against the memory of a host."""
    if run.metadata.get("benchmark_type") != "checkpointing":
        raise NotApplicable("not a checkpointing run")
    size, memory = checkpoint_gb(run), memory_of(run)
    if memory.judged is None or not memory.hosts:
        raise CannotTell("nobody says how much memory the clients have")
    each, needed = size / memory.hosts, TIMES_MEMORY * memory.judged[1] / memory.hosts / GIB
    if each < needed:
        text = f"{each:.1f} GB of checkpoint a host, {TIMES_MEMORY} × {needed / TIMES_MEMORY:.1f} GiB of memory"
        issue = Issue(Validation.CLOSED, text, "checkpoint_size_GB", f">= {needed:.1f}", round(each, 1), "warning")
        yield finding(issue)
    elif memory.judged[0] == "measured":
        need_all_memory(run)


def checkpoint_gb(run: Subject) -> float:
    """The size of one checkpoint that DLIO reports; of a summary that lies elsewhere the record has the metrics."""
    for place in (run.summary.get("metric"), run.summary, run.metadata.get("metrics")):
        size = place.get("checkpoint_size_GB") if isinstance(place, dict) else None
        if sized(size):
            return float(size)
    raise CannotTell("DLIO does not say checkpoint_size_GB")
