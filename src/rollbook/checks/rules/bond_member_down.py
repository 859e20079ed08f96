"""A member of a network bond is down.

Why: The bond stays up but has lost bandwidth and redundancy.
Example: bonding bond0: eth1 is down (node17)
Fix: Check the cable and the switch port.
Reference: networking/bonding
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.checks.text import findings_by_text
from rollbook.records.findings import Finding
from rollbook.sources.bonding import Bond

ID, SEVERITY, NEEDS = "bond-member-down", "fail", (Bond,)


def check(run: RunData) -> Iterator[Finding]:
    """Members whose link is not up; one finding per bond and member."""
    return findings_by_text(
        (f"bonding {bond.bond}: {member} is {state}", host.name)
        for host, bond in run.each(Bond)
        for member, state in bond.slaves.items()
        if state != "up"
    )
