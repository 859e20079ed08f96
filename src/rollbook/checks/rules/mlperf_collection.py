"""Not every client of a benchmark was looked at, or the way its data came is not known.

Why: Memory and host counts of a submission must come from all clients; a run on data of the launching host alone has
a fraction of the memory, and so a data set that is too small.
Example: 15 of 16 clients gave data; missing: node17
Fix: Make every client reachable and run again.
Reference: MLPerf Storage rules, cluster collection
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import Issue, Validation, finding
from rollbook.checks.subject import Benchmark, Subject
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-collection", "warn", (Benchmark,)


def check(run: Subject) -> Iterator[Finding]:
    """Clients without data, and a list of clients shorter than the number declared."""
    missing = [host.name for host in run.start if not host.gave_data]
    if missing or not run.start:
        asked, gave = len(run.start), len(run.telling)
        text = f"{gave} of {asked} clients gave data" + (f"; missing: {fold(missing)}" if missing else "")
        yield finding(Issue(Validation.OPEN, text, "hosts", asked, gave, "warning"), missing)
    declared = (run.metadata.get("args") or {}).get("num_client_hosts")
    if isinstance(declared, int) and run.start and declared != len(run.start):
        text = f"{declared} clients declared, {len(run.start)} asked"
        yield finding(Issue(Validation.OPEN, text, "num_client_hosts", declared, len(run.start), "warning"))
