"""Not every client of a benchmark gave data.

Why: The memory and host counts of a submission must come from all clients; with fewer clients the required data set
size is computed too small.
Example: 15 of 16 clients gave data; missing: node17
Fix: Make every client reachable and repeat the run.
Reference: MLPerf Storage rules, cluster collection
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import Issue, Validation, finding_for
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-collection", "warn", (Benchmark,)


def check(run: RunData) -> Iterator[Finding]:
    """Clients without data, and a number of hosts that differs from the declared one."""
    missing = [host.name for host in run.start if not host.gave_data]
    if missing or not run.start:
        total, gave = len(run.start), len(run.hosts_with_data)
        text = f"{gave} of {total} clients gave data" + (f"; missing: {fold(missing)}" if missing else "")
        yield finding_for(Issue(Validation.OPEN, text, "hosts", total, gave, "warning"), missing)
    declared = (run.metadata.get("args") or {}).get("num_client_hosts")
    if isinstance(declared, int) and run.start and declared != len(run.start):
        text = f"{declared} clients declared, {len(run.start)} in the run"
        yield finding_for(Issue(Validation.OPEN, text, "num_client_hosts", declared, len(run.start), "warning"))
