"""A member of a bond has no link.

Why: The bond is up and looks sound, with part of its bandwidth and none of its redundancy.
Example: bond0: eth1 is down (node17)
Fix: Check the cable and the switch's port.
Reference: networking/bonding
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.bonding import Bond

ID, SEVERITY, NEEDS = "bond-member-down", "fail", (Bond,)


def check(run: Subject) -> Iterator[Finding]:
    """Members whose link is not up, like ones together."""
    found: dict[str, list[str]] = {}
    for host, bond in run.each(Bond):
        for member, state in bond.slaves.items():
            if state != "up":
                found.setdefault(f"{bond.bond}: {member} is {state}", []).append(host.name)
    for text, names in found.items():
        yield Finding(message=f"{text} ({fold(names)})", hosts=names)
