"""Rollbook used more than 1 % of the CPUs of a host.

Why: The overhead of recording may affect the measurement.
Example: agent used 1.84 % of the CPUs (node17)
Fix: Use a longer interval or fewer sources; hosts with many disks, interfaces or mounts need more time.
Reference: hosts.json, cpu_share
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.records.record import SeriesHost

ID, SEVERITY, NEEDS = "observer-cost", "warn", (SeriesHost,)
MAX_SHARE = 0.01
# Facts are read at start and end, which is a large share of a short run.
FACTS_SECONDS = 1.0  # CPU time


def check(run: RunData) -> Iterator[Finding]:
    """The CPU time of the agent as a share of all CPUs."""
    unknown = []
    for host in run.series:
        if host.cpu_share is None:
            unknown.append(host.name)
        elif host.cpu_share > MAX_SHARE and (host.cost is None or (host.cost.cpu_seconds or 0.0) > FACTS_SECONDS):
            yield Finding(
                message=f"agent used {100 * host.cpu_share:.2f} % of the CPUs ({host.name})",
                hosts=[host.name],
                evidence={"cpu_share": host.cpu_share},
            )
    if unknown:
        raise CannotTell(f"overhead unknown on {fold(unknown)}")
