"""A host that was there at the start was gone at the end of the run.

Why: Part of the run was done without it, or it can no longer be told what happened on it.
Example: timed-out: no answer within 60 s (node17)
Fix: Look at the host's console and logs; run again once it is sound.
Reference: rollbook hosts --check
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.model import Finding
from rollbook.checks.subject import Ended, Subject
from rollbook.hosts import fold

ID, SEVERITY, NEEDS = "host-lost", "fail", (Ended,)


def check(run: Subject) -> Iterator[Finding]:
    """Hosts that gave data at the start and none at the end."""
    after = {host.name: host for host in run.end}
    reasons: dict[str, list[str]] = {}
    for host in run.telling:
        last = after.get(host.name)
        if last is None or not last.gave_data:
            reason = f"{last.status}: {last.reason}" if last else "not looked at"
            reasons.setdefault(reason, []).append(host.name)
    for reason, names in reasons.items():
        yield Finding(message=f"{reason} ({fold(names)})", hosts=names)
