"""The clients of a run differ in memory, cores, operating system or kernel.

Why: Results of unlike clients cannot be compared, and sizes that are computed from a mean are wrong for some of them.
Example: Memory variance across hosts: 420.0 GiB to 580.0 GiB
Fix: Use clients of one kind, with the same software.
Reference: MLPerf Storage, cluster validation
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollbook.checks.mlperf_clients import is_measured, require_all_memory
from rollbook.checks.mlperf_values import cluster_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.cluster import HostInfo, consistency_issues
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-clients-inconsistent", "warn", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Hosts that returned data; of a result without a record, what its cluster information says."""
    rules = round_of(run)
    hosts = [info for host in run.start if (info := HostInfo.of(host)) is not None]
    cluster = cluster_of(run.metadata)
    if hosts:
        count: Any = len(hosts)
        issues = consistency_issues(hosts)
    elif is_measured(cluster):
        count, texts = cluster.get("num_hosts"), cluster.get("host_consistency_issues")
        issues = [str(text) for text in texts] if isinstance(texts, list) else []
    else:
        raise CannotTell("the clients were not measured")
    yield Compared("differences between clients", 0, f"{len(issues)} between {count} clients")
    for text in issues:
        yield finding_for(Validation(rules.cluster.unlike), text, "hosts", "equal clients", text, severity="warning")
    if hosts:
        require_all_memory(run)
