"""A host that was there at the start was gone at the end of the run.

Why: Part of the run was done without it, or it can no longer be told what happened on it.
Example: timed-out: no answer within 60 s (node17)
Fix: Look at the host's console and logs; run again once it is sound.
Reference: rollbook hosts --check
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Ended, Subject, Told
from rollbook.checks.times import span
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "host-lost", "fail", (Ended, Told)


def check(run: Subject) -> Iterator[Finding]:
    """Hosts that gave data at the start and none at the end."""
    after = {host.name: host for host in run.end}
    heard = {host.name: host.last_ns for host in run.series if host.last_ns is not None}
    reasons: dict[str, list[str]] = {}
    for host in run.telling:
        last = after.get(host.name)
        if last is None or not last.gave_data:
            reason = f"{last.status}: {last.reason}" if last else "not looked at"
            reasons.setdefault(reason, []).append(host.name)
    for reason, names in reasons.items():
        last_words = [heard[name] for name in names if name in heard]
        when = span(min(last_words), run.ended_ns) if last_words else {}
        yield Finding(message=f"{reason} ({fold(names)})", hosts=names, evidence={**when})
