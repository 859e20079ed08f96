"""The accelerators of a checkpointing run could not hold the model they checkpoint.

Why: The run claims accelerators whose memory is smaller than the state they are said to write.
Example: 8 × h100 hold 640 GB, the checkpoint has 912.0 GB
Fix: Use more processes, or the accelerator that the model needs.
Reference: MLPerf Storage rules 4.3.4
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import Issue, Validation, finding, whole
from rollbook.checks.rules.mlperf_checkpoint_size import checkpoint_gb
from rollbook.checks.subject import Benchmark, Subject
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-accelerator-memory", "fail", (Benchmark,)
MEMORY_GB = {"a100": 80, "b200": 180, "h100": 80, "mi355": 288}


def check(run: Subject) -> Iterator[Finding]:
    """Memory of all accelerators against one checkpoint."""
    if run.metadata.get("benchmark_type") != "checkpointing":
        raise NotApplicable("not a checkpointing run")
    name = str(run.metadata.get("accelerator") or "").lower()
    if name not in MEMORY_GB:
        raise CannotTell(f"the memory of accelerator {name or 'unknown'} is not known")
    count, size = whole(run.metadata.get("num_processes"), "num_processes"), checkpoint_gb(run)
    held = MEMORY_GB[name] * count
    if held < size:
        text = f"{count} × {name} hold {held} GB, the checkpoint has {size:.1f} GB"
        yield finding(Issue(Validation.INVALID, text, "accelerator", f">= {size:.1f} GB", f"{held} GB"))
