"""A checkpointing run uses few processes a host.

Why: CLOSED wants more than four processes on each host, as on real nodes with accelerators.
Example: 4 processes on each of 16 hosts
Fix: Use fewer hosts or more processes, or submit as OPEN.
Reference: MLPerf Storage rules 4.6.2
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import Issue, Validation, finding, whole
from rollbook.checks.subject import Benchmark, Subject
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-processes", "warn", (Benchmark,)
MORE_THAN = 4


def check(run: Subject) -> Iterator[Finding]:
    """Processes over hosts."""
    if run.metadata.get("benchmark_type") != "checkpointing":
        raise NotApplicable("not a checkpointing run")
    hosts = len(run.start)
    if not hosts:
        raise CannotTell("no host was asked for")
    processes = whole(run.metadata.get("num_processes"), "num_processes")
    if processes / hosts <= MORE_THAN:
        text = f"{processes / hosts:g} processes on each of {hosts} hosts"
        yield finding(Issue(Validation.OPEN, text, "num_processes", f"> {MORE_THAN * hosts}", processes, "warning"))
