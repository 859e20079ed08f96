"""A host returned data at the start of the run but not at the end.

Why: The host may have crashed or left the network during the run, and its changes are unknown.
Example: timed-out at the end: no answer within 60 s (node17)
Fix: Check the host's console and logs, repair it and repeat the run.
Reference: rollbook hosts --check
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import EndFacts, HostData, RunData
from rollbook.checks.times import span
from rollbook.hosts import fold
from rollbook.records.causes import group_by_cause
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "host-lost", "fail", (EndFacts, HostData)


def check(run: RunData) -> Iterator[Finding]:
    """Hosts that returned data at the start and none at the end."""
    after = {host.name: host for host in run.end}
    last_sample = {host.name: host.last_ns for host in run.series if host.last_ns is not None}
    reasons: list[tuple[str, str]] = []
    for host in run.hosts_with_data:
        last = after.get(host.name)
        if last is None or not last.gave_data:
            reason = f"{last.status} at the end: {last.reason}" if last else "not read at the end"
            reasons.append((host.name, reason))
    for reason, names in group_by_cause(reasons):
        times = [last_sample[name] for name in names if name in last_sample]
        when = span(min(times), run.ended_ns) if times else {}
        yield Finding(message=f"{reason} ({fold(names)})", hosts=names, evidence={**when})
