"""The accelerators of a checkpointing run could not hold the model they checkpoint.

Why: The run claims accelerators whose memory is smaller than the state that they write.
Example: 8 × h100 hold 640 GB, the checkpoint has 912.0 GB
Fix: Use more processes, or the accelerator that the model needs.
Reference: MLPerf Storage rules 4.3.4
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_values import positive_integer
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.rules.mlperf_checkpoint_size import checkpoint_gb
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-accelerator-memory", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Memory of all accelerators against one checkpoint; a run that names no type has the round's default."""
    require_type(run, "checkpointing")
    rules = round_of(run)
    sizes = rules.require(rules.checkpointing.accelerator_gb)
    name = str(run.metadata.get("accelerator") or "").lower()
    if name not in sizes:
        raise CannotTell(f"round {rules.name} has no memory size for accelerator {name}")
    count, size = positive_integer(run.metadata.get("num_processes"), "num_processes"), checkpoint_gb(run)
    held = sizes[name] * count
    yield Compared("memory of all accelerators, GB", f">= {size:.1f}", declared=held)
    if held < size:
        text = f"{count} × {name or 'accelerators'} hold {held:g} GB, the checkpoint has {size:.1f} GB"
        yield finding_for(Validation.INVALID, text, "accelerator", f">= {size:.1f} GB", f"{held:g} GB")
