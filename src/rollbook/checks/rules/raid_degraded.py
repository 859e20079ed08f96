"""A software RAID array is down, lacks a member, or is being repaired.

Why: Every read of a missing member is computed from the others, and a repair reads and writes all disks.
Example: md0: 7 of 8 devices, recovery (node17)
Fix: Replace the disk and let the array recover before a run.
Reference: md(4)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.records.findings import Finding
from rollbook.sources.mdstat import Array

ID, SEVERITY, NEEDS = "raid-degraded", "fail", (Array,)


def check(run: Subject) -> Iterator[Finding]:
    """Arrays that are inactive or broken, with too few devices, or with a resync, recovery or check under way."""
    for host, array in run.each(Array):
        down = not array.state.startswith("active")
        if down or array.degraded or array.action:
            devices = f"{array.working} of {array.wanted} devices" if array.degraded else "all devices"
            action = f", {array.action}" if array.action else ""
            yield Finding(
                message=f"{array.array}: {array.state if down else devices}{action} ({host.name})",
                hosts=[host.name],
                severity="fail" if down or array.degraded else "warn",
            )
