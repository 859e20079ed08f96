"""A client has less memory than any run needs.

Why: A host that reports almost none was misread, or is limited by a control group that no benchmark fits into. MLPerf
Storage's tools name a minimum and publish no number; the default, 1 GiB, only detects misread hosts.
Example: Host memory 0.5GB below minimum 1GB
Fix: Raise the limit of the control group, or leave the host out. A site that needs more sets --minimum-memory.
Reference: rollbook check --minimum-memory
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rollbook.checks.mlperf_clients import is_measured, require_all_memory
from rollbook.checks.mlperf_values import GIB, cluster_of, is_size
from rollbook.checks.mlperf_verdict import Validation, finding_for
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.cluster import HostInfo
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-minimum-memory", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Each client's memory within its control group; of a result without a record, the smallest it reports."""
    required = f">= {run.minimum_memory_gb:g}"
    if not run.start:
        cluster = cluster_of(run.metadata)
        smallest = cluster.get("min_memory_bytes")
        if not is_measured(cluster) or not is_size(smallest):
            raise CannotTell("the memory of the clients was not measured")
        yield Compared("smallest client, GiB", required, round(smallest / GIB, 1))
        if smallest < run.minimum_memory_gb * GIB:
            yield too_small(int(smallest), run.minimum_memory_gb)
        return
    usable = {host.name: info.memory.usable for host in run.start if (info := HostInfo.of(host)) is not None}
    if usable:
        yield Compared("smallest client, GiB", required, round(min(usable.values()) / GIB, 1))
    for name, size in usable.items():
        if size < run.minimum_memory_gb * GIB:
            yield too_small(size, run.minimum_memory_gb, [name])
    require_all_memory(run)


def too_small(usable: int, minimum_gb: float, hosts: Iterable[str] = ()) -> Finding:
    """Return the finding for a host with that much memory."""
    memory = f"{usable / GIB:.1f}GB"
    text = f"Host memory {memory} below minimum {minimum_gb:g}GB"
    return finding_for(Validation.INVALID, text, "host_memory", f">= {minimum_gb:g}GB", memory, hosts=hosts)
