"""A client has less memory than any run needs.

Why: A host that reports next to none was misread, or is shut in a control group that no benchmark fits into.
Example: Host memory 0.5GB below minimum 1GB
Fix: Raise the limit of the control group, or leave the host out.
Reference: MLPerf Storage rules, MINIMUM_HOST_MEMORY_GB
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf import GIB, Issue, Validation, finding
from rollbook.checks.model import Finding
from rollbook.checks.subject import Benchmark, Subject
from rollbook.records.cluster import HostInfo
from rollbook.sources.meminfo import MemInfo

ID, SEVERITY, NEEDS = "mlperf-minimum-memory", "fail", (Benchmark, MemInfo)
MINIMUM_HOST_MEMORY_GB = 1


def check(run: Subject) -> Iterator[Finding]:
    """Each client's memory, as far as control groups leave it."""
    for host in run.telling:
        info = HostInfo.of(host)
        if info is not None and info.memory.usable < MINIMUM_HOST_MEMORY_GB * GIB:
            yield finding(too_small(info.memory.usable), [host.name])


def too_small(usable: int) -> Issue:
    """The issue with a host of so little memory."""
    memory = f"{usable / GIB:.1f}GB"
    return Issue(
        Validation.INVALID,
        f"Host memory {memory} below minimum {MINIMUM_HOST_MEMORY_GB}GB",
        "host_memory",
        f">= {MINIMUM_HOST_MEMORY_GB}GB",
        memory,
    )
