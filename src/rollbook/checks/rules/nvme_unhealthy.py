"""An NVMe drive raises an alarm of its own, or is worn more than its peers.

Why: A drive that is degraded, read-only or too hot slows every stripe that it is part of; one past its rated life may
fail in the middle of a run, and a worn one writes more slowly than those beside it.
Example: nvme3: read-only (node17)
Fix: nvme smart-log /dev/nvme3 shows the numbers; copy what is on the drive and replace it.
Reference: NVM Express base specification, SMART / health information (log page 02h)
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.nvme import Controller
from rollbook.sources.nvme_smart import Health

ID, SEVERITY, NEEDS = "nvme-unhealthy", "fail", (Health,)
ALARMS = (
    "spare blocks run out",
    "too hot or too cold",
    "reliability degraded",
    "read-only",
    "its power backup failed",
    "persistent memory is read-only",
)
RATED = 100  # percent of the life that its maker promises
APART = 20  # points over the group's median


def check(run: Subject) -> Iterator[Finding]:
    """Bits of the critical warning; wear beyond the rated life, or far beyond the median of the group."""
    drives: dict[str, list[Health]] = {}
    for host, drive in run.each(Health):
        drives.setdefault(host.name, []).append(drive)
    silent = {name for name, found in drives.items() if any(drive.critical_warning is None for drive in found)}
    # A drive that did not answer has no row.
    answered = {name: {drive.controller for drive in found} for name, found in drives.items()}
    silent |= {host.name for host, one in run.each(Controller) if one.controller not in answered.get(host.name, ())}
    for group in run.groups:
        mine = [(host.name, drive) for host in group.hosts for drive in drives.get(host.name, [])]
        worn = [drive.percentage_used for _, drive in mine if drive.percentage_used is not None]
        usual = statistics.median(worn) if worn else 0.0
        for name, drive in mine:
            yield from _drive(name, drive, usual)
    if silent:
        raise CannotTell(f"no answer from a drive of {fold(silent)}")


def _drive(host: str, drive: Health, usual: float) -> Iterator[Finding]:
    raised = [text for bit, text in enumerate(ALARMS) if (drive.critical_warning or 0) >> bit & 1]
    used = drive.percentage_used
    if raised:
        yield Finding(
            message=f"{drive.controller}: {', '.join(raised)} ({host})",
            hosts=[host],
            evidence={"controller": drive.controller, "critical_warning": drive.critical_warning},
        )
    if used is not None and (used >= RATED or used > usual + APART):
        yield Finding(
            message=f"{drive.controller}: {used} % of its life used, {usual:g} % is usual ({host})",
            hosts=[host],
            severity="warn",
            evidence={"controller": drive.controller, "percentage_used": used, "median": usual},
        )
