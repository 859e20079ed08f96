"""Some sources of a host could not be read at the start.

Why: Values that were not read were not compared, so differences may be undetected.
Example: 1 of 66 sources missing: nvidia_smi timed-out (node17)
Fix: See the status of the source in hosts.json, and run its program on the host if it has one.
Reference: rollbook snapshot --json
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import HostData, RunData
from rollbook.hosts import fold
from rollbook.records.causes import group_by_cause
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "host-partial", "warn", (HostData,)


def check(run: RunData) -> Iterator[Finding]:
    """Partial hosts; one finding per cause."""
    partial = [(host.name, host.reason) for host in run.hosts_with_data if host.status == "partial"]
    for reason, names in group_by_cause(partial):
        yield Finding(message=f"{reason} ({fold(names)})", hosts=names)
