"""A host that was asked for gave nothing at the start.

Why: Sums, minimums and comparisons leave it out, so they speak for fewer hosts than the run used.
Example: refused: key rejected (node17)
Fix: Repair what the reason says, or leave the host out of the list and of the run.
Reference: rollbook hosts --check
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "host-missing", "fail", ()


def check(run: Subject) -> Iterator[Finding]:
    """Hosts without data, those with one reason together."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for host in run.start:
        if not host.gave_data:
            reasons.setdefault((host.status, host.reason), []).append(host.name)
    for (status, reason), names in reasons.items():
        yield Finding(message=f"{status}: {reason} ({fold(names)})", hosts=names, evidence={"status": status})
