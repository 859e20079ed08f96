"""A client has less memory than any run needs.

Why: A host that reports next to none was misread, or is shut in a control group that no benchmark fits into. MLPerf
Storage's tools name a least size and publish no number; ours, 1 GiB, only tells a misread host from a small one.
Example: Host memory 0.5GB below minimum 1GB
Fix: Raise the limit of the control group, or leave the host out. A site that knows how much it needs says so with
--minimum-memory.
Reference: rollbook check --minimum-memory
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import GIB, Issue, Validation, finding, need_all_memory
from rollbook.checks.subject import Benchmark, Subject
from rollbook.records.cluster import HostInfo
from rollbook.records.findings import Finding
from rollbook.sources.meminfo import MemInfo

ID, SEVERITY, NEEDS = "mlperf-minimum-memory", "fail", (Benchmark, MemInfo)


def check(run: Subject) -> Iterator[Finding]:
    """Each client's memory, as far as control groups leave it."""
    for host in run.telling:
        info = HostInfo.of(host)
        if info is not None and info.memory.usable < run.minimum_memory_gb * GIB:
            yield finding(too_small(info.memory.usable, run.minimum_memory_gb), [host.name])
    need_all_memory(run)


def too_small(usable: int, minimum_gb: float) -> Issue:
    """The issue with a host of so little memory."""
    memory = f"{usable / GIB:.1f}GB"
    return Issue(
        Validation.INVALID,
        f"Host memory {memory} below minimum {minimum_gb:g}GB",
        "host_memory",
        f">= {minimum_gb:g}GB",
        memory,
    )
