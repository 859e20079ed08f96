"""A GPU was in use before the run began.

Why: A process that was left over holds memory and takes time slices.
Example: GPU 3: 40536 MiB in use, 98 % busy before the start (node17)
Fix: nvidia-smi names the process; end it, or reset the GPU.
Reference: nvidia-smi --help-query-gpu
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.records.findings import Finding
from rollbook.sources.nvidia_smi import Gpu

ID, SEVERITY, NEEDS = "gpu-in-use", "warn", (Gpu,)
DRIVERS_OWN = 1024  # MiB; what driver and firmware hold for themselves is below


def check(run: Subject) -> Iterator[Finding]:
    """GPUs with more memory in use than the driver needs for itself."""
    for host, gpu in run.each(Gpu):
        if gpu.memory_used_mib is not None and gpu.memory_used_mib > DRIVERS_OWN:
            busy = "" if gpu.utilization_percent is None else f", {gpu.utilization_percent} % busy"
            yield Finding(
                message=f"GPU {gpu.index}: {gpu.memory_used_mib} MiB in use{busy} before the start ({host.name})",
                hosts=[host.name],
                evidence={"gpu": gpu.index, "memory_used_mib": gpu.memory_used_mib, **run.at_start()},
            )
