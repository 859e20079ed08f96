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
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "host-partial", "warn", (HostData,)


def check(run: RunData) -> Iterator[Finding]:
    """Partial hosts; one finding per reason."""
    reasons: dict[str, list[str]] = {}
    for host in run.hosts_with_data:
        if host.status == "partial":
            reasons.setdefault(host.reason, []).append(host.name)
    for reason, names in reasons.items():
        yield Finding(message=f"{reason} ({fold(names)})", hosts=names)
