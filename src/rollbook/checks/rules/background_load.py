"""A host was busy before the run began.

Why: A job that was left over, or a backup, takes its share of CPU, memory and disks from what is measured.
Example: load 61.20 on 96 CPUs before the start (node17)
Fix: Look for the program (top, systemd-cgls), wait for it or end it, and run again.
Reference: proc_loadavg(5)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.records.findings import Finding
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.sources.loadavg import LoadAvg

ID, SEVERITY, NEEDS = "background-load", "warn", (LoadAvg, CpuInfo)
SHARE = 0.25  # of the CPUs: logging in and the last job's tail stay below
LEAST = 2.0  # tasks, on hosts of a few CPUs


def check(run: Subject) -> Iterator[Finding]:
    """The load of the last minute against the number of CPUs; one finding for all busy hosts."""
    cpus = {host.name: cpu.logical_cpus for host, cpu in run.each(CpuInfo)}
    loads = {host.name: load.load_1min for host, load in run.each(LoadAvg) if host.name in cpus}
    busy = {name: load for name, load in loads.items() if load > max(LEAST, SHARE * cpus[name])}
    if busy:
        worst = max(busy, key=busy.__getitem__)
        yield Finding(
            message=f"load {busy[worst]:.2f} on {cpus[worst]} CPUs before the start ({worst})",
            hosts=list(busy),
            evidence={"load_1min": busy, **run.at_start()},
        )
