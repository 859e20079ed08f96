"""Some sources of a host could not be read at the start.

Why: What was not read was not compared: the host may differ there without anybody seeing it.
Example: 1 of 66 sources missing: nvidia_smi timed-out (node17)
Fix: Look at the source's status in hosts.json. A program that hangs on one host is a finding of its own.
Reference: rollbook snapshot --json
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject, Told
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "host-partial", "warn", (Told,)


def check(run: Subject) -> Iterator[Finding]:
    """Partial hosts, those with one reason together."""
    reasons: dict[str, list[str]] = {}
    for host in run.telling:
        if host.status == "partial":
            reasons.setdefault(host.reason, []).append(host.name)
    for reason, names in reasons.items():
        yield Finding(message=f"{reason} ({fold(names)})", hosts=names)
