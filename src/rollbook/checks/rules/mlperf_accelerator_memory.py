"""The accelerators of a checkpointing run have less memory than the checkpoint.

Why: The simulated accelerators could not hold the state that they write.
Example: 8 × h100 have 640 GB of memory, the checkpoint has 912.0 GB
Fix: Use more processes or an accelerator with more memory.
Reference: MLPerf Storage rules 4.3.4
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import Issue, Validation, finding_for, positive_integer
from rollbook.checks.rules.mlperf_checkpoint_size import checkpoint_gb
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-accelerator-memory", "fail", (Benchmark,)
MEMORY_GB = {"a100": 80, "b200": 180, "h100": 80, "mi355": 288}


def check(run: RunData) -> Iterator[Finding]:
    """Compare the memory of all accelerators with one checkpoint."""
    if run.metadata.get("benchmark_type") != "checkpointing":
        raise NotApplicable("not a checkpointing run")
    name = str(run.metadata.get("accelerator") or "").lower()
    if name not in MEMORY_GB:
        raise CannotTell(f"memory of accelerator {name or '(not given)'} is unknown")
    count, size = positive_integer(run.metadata.get("num_processes"), "num_processes"), checkpoint_gb(run)
    memory = MEMORY_GB[name] * count
    if memory < size:
        text = f"{count} × {name} have {memory} GB of memory, the checkpoint has {size:.1f} GB"
        yield finding_for(Issue(Validation.INVALID, text, "accelerator", f">= {size:.1f} GB", f"{memory} GB"))
