"""A host was busy before the run started.

Why: Another job or a backup takes CPU, memory and disk bandwidth from the benchmark.
Example: load average 61.20 on 96 CPUs before the start (node17)
Fix: Find the program (top, systemd-cgls), wait until it ends or stop it, and repeat the run.
Reference: proc_loadavg(5)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.records.findings import Finding
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.sources.loadavg import LoadAvg

ID, SEVERITY, NEEDS = "background-load", "warn", (LoadAvg, CpuInfo)
SHARE = 0.25  # of the CPUs: logins and the end of the last job stay below
LEAST = 2.0  # tasks, for hosts with few CPUs


def check(run: RunData) -> Iterator[Finding]:
    """Compare the load of the last minute with the number of CPUs; one finding for all busy hosts."""
    cpus = {host.name: cpu.logical_cpus for host, cpu in run.each(CpuInfo)}
    loads = {host.name: load.load_1min for host, load in run.each(LoadAvg) if host.name in cpus}
    busy = {name: load for name, load in loads.items() if load > max(LEAST, SHARE * cpus[name])}
    if busy:
        worst = max(busy, key=busy.__getitem__)
        yield Finding(
            message=f"load average {busy[worst]:.2f} on {cpus[worst]} CPUs before the start ({worst})",
            hosts=list(busy),
            evidence={"load_1min": busy, **run.at_start()},
        )
