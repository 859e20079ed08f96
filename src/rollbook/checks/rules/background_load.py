"""A host was busy before the run began.

Why: A job that was left over, or a backup, takes its share of CPU, memory and disks from what is measured.
Example: load 61.20 on 96 CPUs before the start (node17)
Fix: Look for the program (top, systemd-cgls), wait for it or end it, and run again.
Reference: proc_loadavg(5)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.model import Finding
from rollbook.checks.subject import Subject
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.sources.loadavg import LoadAvg

ID, SEVERITY, NEEDS = "background-load", "warn", (LoadAvg, CpuInfo)
SHARE = 0.25  # of the CPUs: logging in and the last job's tail stay below
LEAST = 2.0  # tasks, on hosts of a few CPUs


def check(run: Subject) -> Iterator[Finding]:
    """The load of the last minute against the number of CPUs."""
    cpus = {host.name: cpu.logical_cpus for host, cpu in run.each(CpuInfo)}
    for host, load in run.each(LoadAvg):
        bearable = max(LEAST, SHARE * cpus.get(host.name, 0))
        if load.load_1min > bearable:
            yield Finding(
                message=f"load {load.load_1min:.2f} on {cpus.get(host.name, '?')} CPUs before the start ({host.name})",
                hosts=[host.name],
                evidence={"load_1min": load.load_1min, "bearable": bearable},
            )
