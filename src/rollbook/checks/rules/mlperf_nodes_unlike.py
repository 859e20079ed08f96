"""Clients of a benchmark differ widely in memory or cores.

Why: The weakest client sets the pace, and rules that use an average fit none of them.
Example: memory from 256.0 GiB (node17) to 512.0 GiB (node01): factor 2.0
Fix: Use clients of one kind.
Reference: MLPerf Storage rules 3.3.7
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_values import GIB
from rollbook.checks.mlperf_verdict import Validation, finding_for
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.records.cluster import HostCPUInfo
from rollbook.records.findings import Finding
from rollbook.sources.cpu_topology import Topology
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.sources.meminfo import MemInfo

ID, SEVERITY, NEEDS = "mlperf-nodes-unlike", "warn", (Benchmark, MemInfo, CpuInfo)
WIDE = 1.5  # largest over smallest


def check(run: RunData) -> Iterator[Finding]:
    """The largest client against the smallest."""
    memory = {host.name: info.total_kib * 1024 / GIB for host, info in run.each(MemInfo)}
    cpus = {host.name: HostCPUInfo.of(cpu, host.fact(Topology)) for host, cpu in run.each(CpuInfo)}
    # Compare like with like: if one host does not report cores, compare logical CPUs of all.
    has_cores = all(cpu.num_cores for cpu in cpus.values())
    cores = {name: float((has_cores and cpu.num_cores) or cpu.num_logical_cores) for name, cpu in cpus.items()}
    for what, values, form in (("memory", memory, "{:.1f} GiB"), ("cores", cores, "{:.0f}")):
        low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
        if values[low] > 0 and values[high] / values[low] > WIDE:
            least, most = form.format(values[low]), form.format(values[high])
            text = f"{what} from {least} ({low}) to {most} ({high}): factor {values[high] / values[low]:.1f}"
            yield finding_for(Validation.CLOSED, text, what, f"<= {WIDE} times", text, severity="warning", hosts=[low])
