"""A checkpointing run uses few processes per host.

Why: CLOSED requires more than four processes on each host, as on real nodes with accelerators.
Example: 4 processes on each of 16 hosts
Fix: Use fewer hosts or more processes, or submit as OPEN.
Reference: MLPerf Storage rules 4.6.2
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_clients import clients
from rollbook.checks.mlperf_values import positive_integer
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-processes", "warn", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Processes over hosts."""
    require_type(run, "checkpointing")
    limit, hosts = round_of(run).checkpointing.more_processes_per_host, clients(run).count
    processes = positive_integer(run.metadata.get("num_processes"), "num_processes")
    yield Compared("processes per host", f"> {limit}", declared=processes / hosts)
    if processes / hosts <= limit:
        text = f"{processes / hosts:g} processes on each of {hosts} hosts"
        yield finding_for(Validation.OPEN, text, "num_processes", f"> {limit * hosts}", processes, severity="warning")
