"""A software RAID array is inactive, degraded or rebuilding.

Why: Reads of a missing member are reconstructed from the others, and a rebuild reads and writes all disks.
Example: mdstat md0: 7 of 8 devices, recovery (node17)
Fix: Replace the failed disk and wait for the rebuild before a run.
Reference: md(4)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.records.findings import Finding
from rollbook.sources.mdstat import Array

ID, SEVERITY, NEEDS = "raid-degraded", "fail", (Array,)


def check(run: RunData) -> Iterator[Finding]:
    """Arrays that are inactive, lack devices, or have a resync, recovery or check in progress."""
    for host, array in run.each(Array):
        if array.level == "container":
            continue
        down = not array.state.startswith("active")
        if down or array.degraded or array.action:
            devices = f"{array.working} of {array.wanted} devices" if array.degraded else "all devices"
            action = f", {array.action}" if array.action else ""
            yield Finding(
                message=f"mdstat {array.array}: {array.state if down else devices}{action} ({host.name})",
                hosts=[host.name],
                severity="fail" if down or array.degraded else "warn",
            )
