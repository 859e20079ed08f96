"""A checkpointing run uses four or fewer processes per host.

Why: The CLOSED division requires more than four processes per host, as on nodes with accelerators.
Example: 4 processes on each of 16 hosts
Fix: Use fewer hosts or more processes, or submit as OPEN.
Reference: MLPerf Storage rules 4.6.2
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import Issue, Validation, finding_for, positive_integer
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-processes", "warn", (Benchmark,)
MORE_THAN = 4


def check(run: RunData) -> Iterator[Finding]:
    """Compare the number of processes per host with the minimum."""
    if run.metadata.get("benchmark_type") != "checkpointing":
        raise NotApplicable("not a checkpointing run")
    hosts = len(run.start)
    if not hosts:
        raise CannotTell("the run has no hosts")
    processes = positive_integer(run.metadata.get("num_processes"), "num_processes")
    if processes / hosts <= MORE_THAN:
        text = f"{processes / hosts:g} processes on each of {hosts} hosts"
        yield finding_for(Issue(Validation.OPEN, text, "num_processes", f"> {MORE_THAN * hosts}", processes, "warning"))
