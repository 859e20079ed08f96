"""Looking at a host took more than a hundredth of its CPUs.

Why: The measurement must not change what is measured.
Example: 1.84 % of its CPUs over the run (node17)
Fix: Lengthen the interval, or leave out sources; a host with very many disks, interfaces or mounts costs more.
Reference: hosts.json, cpu_share
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.records.record import SeriesHost

ID, SEVERITY, NEEDS = "observer-cost", "warn", (SeriesHost,)
MOST = 0.01
# Facts are read once at each end, whatever the length of the run: in a short one that is a large share of little.
ONCE = 1.0  # CPU seconds


def check(run: Subject) -> Iterator[Finding]:
    """The agent's own CPU time over the time it ran, as a share of all CPUs."""
    silent = []
    for host in run.series:
        if host.cpu_share is None:
            silent.append(host.name)
        elif host.cpu_share > MOST and (host.cost is None or (host.cost.cpu_seconds or 0.0) > ONCE):
            yield Finding(
                message=f"{100 * host.cpu_share:.2f} % of its CPUs over the run ({host.name})",
                hosts=[host.name],
                evidence={"cpu_share": host.cpu_share},
            )
    if silent:
        raise CannotTell(f"no cost known of {fold(silent)}")
