"""An NVMe drive reports a critical warning, or is worn more than its peers.

Why: A degraded, read-only or overheated drive slows every stripe that uses it. A drive beyond its rated endurance may
fail during a run.
Example: nvme3: read-only (node17)
Fix: See `nvme smart-log` for the drive, back up its data and replace it.
Reference: NVM Express base specification, SMART / health information (log page 02h)
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.nvme import Controller
from rollbook.sources.nvme_smart import Health

ID, SEVERITY, NEEDS = "nvme-unhealthy", "fail", (Health,)
WARNINGS = (
    "spare blocks low",
    "temperature out of range",
    "reliability degraded",
    "read-only",
    "power backup failed",
    "persistent memory is read-only",
)
RATED = 100  # percent of the rated endurance
MARGIN = 20  # percentage points above the median of the drives of its kind in the group


def check(run: RunData) -> Iterator[Finding]:
    """Bits of the critical warning; wear beyond the rated endurance or far above the median of its kind."""
    drives: dict[str, list[Health]] = {}
    for host, drive in run.each(Health):
        drives.setdefault(host.name, []).append(drive)
    unread = {name for name, found in drives.items() if any(drive.critical_warning is None for drive in found)}
    # A drive that did not respond has no row.
    answered = {name: {drive.controller for drive in found} for name, found in drives.items()}
    unread |= {host.name for host, one in run.each(Controller) if one.controller not in answered.get(host.name, ())}
    kinds = {(host.name, one.controller): (one.model, one.firmware) for host, one in run.each(Controller) if one.model}
    for group in run.groups:
        in_group = [(host.name, drive) for host in group.hosts for drive in drives.get(host.name, [])]
        worn: dict[tuple[str | None, ...] | None, list[int]] = {}  # by kind; None for all
        for name, drive in in_group:
            if drive.percentage_used is not None:
                for kind in {kinds.get((name, drive.controller)), None}:
                    worn.setdefault(kind, []).append(drive.percentage_used)
        medians = {kind: statistics.median(used) for kind, used in worn.items()}
        for name, drive in in_group:
            yield from _drive(name, drive, medians.get(kinds.get((name, drive.controller)), 0.0))
    if unread:
        raise CannotTell(f"a drive did not respond on {fold(unread)}")


def _drive(host: str, drive: Health, median: float) -> Iterator[Finding]:
    raised = [text for bit, text in enumerate(WARNINGS) if (drive.critical_warning or 0) >> bit & 1]
    used = drive.percentage_used
    if raised:
        yield Finding(
            message=f"{drive.controller}: {', '.join(raised)} ({host})",
            hosts=[host],
            evidence={"controller": drive.controller, "critical_warning": drive.critical_warning},
        )
    if used is not None and (used >= RATED or used > median + MARGIN):
        yield Finding(
            message=f"{drive.controller}: {used} % of its endurance used, median {median:g} % ({host})",
            hosts=[host],
            severity="warn",
            evidence={"controller": drive.controller, "percentage_used": used, "median": median},
        )
