"""A GPU was in use before the run started.

Why: Another process occupies GPU memory and compute time.
Example: GPU 3: 40536 MiB in use, 98 % busy before the start (node17)
Fix: Find the process with nvidia-smi and stop it. If no process is listed, reset the GPU.
Reference: nvidia-smi --help-query-gpu
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.nvidia_smi import Gpu

ID, SEVERITY, NEEDS = "gpu-in-use", "warn", (Gpu,)
DRIVER_MEMORY = 1024  # MiB; driver and firmware use less


def check(run: RunData) -> Iterator[Finding]:
    """GPUs with more used memory than the driver needs."""
    unknown = []
    for host, gpu in run.each(Gpu):
        if gpu.memory_used_mib is None:
            unknown.append(host.name)
        elif gpu.memory_used_mib > DRIVER_MEMORY:
            busy = "" if gpu.utilization_percent is None else f", {gpu.utilization_percent} % busy"
            yield Finding(
                message=f"GPU {gpu.index}: {gpu.memory_used_mib} MiB in use{busy} before the start ({host.name})",
                hosts=[host.name],
                evidence={"gpu": gpu.index, "memory_used_mib": gpu.memory_used_mib, **run.at_start()},
            )
    if unknown:
        raise CannotTell(f"a GPU did not report its memory on {fold(unknown)}")
