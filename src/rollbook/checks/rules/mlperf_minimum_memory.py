"""A client has less memory than the minimum.

Why: The host was misread, or its cgroup limit is too low for a benchmark. MLPerf Storage publishes no number; the
default of 1 GiB only detects misread hosts.
Example: Host memory 0.5GB below minimum 1GB
Fix: Raise the cgroup limit or remove the host. `--minimum-memory` sets another minimum.
Reference: rollbook check --minimum-memory
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import GIB, Issue, Validation, finding_for, require_all_memory
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.records.cluster import HostInfo
from rollbook.records.findings import Finding
from rollbook.sources.meminfo import MemInfo

ID, SEVERITY, NEEDS = "mlperf-minimum-memory", "fail", (Benchmark, MemInfo)


def check(run: RunData) -> Iterator[Finding]:
    """Compare the memory of each client, limited by its cgroup, with the minimum."""
    for host in run.hosts_with_data:
        info = HostInfo.of(host)
        if info is not None and info.memory.usable < run.minimum_memory_gb * GIB:
            yield finding_for(too_small(info.memory.usable, run.minimum_memory_gb), [host.name])
    require_all_memory(run)


def too_small(usable: int, minimum_gb: float) -> Issue:
    """The issue for a host with too little memory."""
    memory = f"{usable / GIB:.1f}GB"
    return Issue(
        Validation.INVALID,
        f"Host memory {memory} below minimum {minimum_gb:g}GB",
        "host_memory",
        f">= {minimum_gb:g}GB",
        memory,
    )
