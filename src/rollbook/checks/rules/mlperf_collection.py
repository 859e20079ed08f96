"""Not every client of a benchmark was measured, or it is unknown how its data was collected.

Why: Memory and host counts of a submission must come from all clients; a run on data of the launching host alone has
a fraction of the memory, and so a data set that is too small.
Example: 15 of 16 clients returned data; missing: node17
Fix: Make every client reachable and run again.
Reference: MLPerf Storage, cluster collection
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rollbook.checks.mlperf_clients import is_measured
from rollbook.checks.mlperf_values import cluster_of, is_size, table
from rollbook.checks.mlperf_verdict import Validation, finding_for, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-collection", "warn", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Clients without data, and a list of clients shorter than the number declared."""
    validation = Validation(round_of(run).cluster.not_collected)
    cluster = cluster_of(run.metadata)
    method = str(cluster.get("collection_method", "unknown"))
    if run.start:
        missing = [host.name for host in run.start if not host.gave_data]
        requested: Any = len(run.start)
        measured = requested - len(missing)
        yield Compared("clients with data", requested, measured)
        if missing:
            text = f"{measured} of {requested} clients returned data; missing: {fold(missing)}"
            yield finding_for(validation, text, "hosts", requested, measured, severity="warning", hosts=missing)
    elif not cluster:
        raise CannotTell("the run has no cluster information")
    else:
        requested = cluster.get("num_hosts_requested") or cluster.get("num_hosts")
        yield Compared("collection", "from every client", method)
        if not is_measured(cluster):
            text = f"the cluster information is from {method}, not from every client"
            yield finding_for(validation, text, "collection_method", "mpi", method, severity="warning")
    declared = table(run.metadata.get("args")).get("num_client_hosts")
    if is_size(declared) and is_size(requested) and requested and declared != requested:
        text = f"{declared} clients declared, {requested} collected"
        yield finding_for(validation, text, "num_client_hosts", declared, requested, severity="warning")
