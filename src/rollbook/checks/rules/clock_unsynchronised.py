"""A host's clock is kept in step by nobody.

Why: It drifts by seconds a day; times in logs and results stop being comparable.
Example: not synchronised (node17)
Fix: systemctl enable --now chronyd, then chronyc sources to see whether it reaches its servers.
Reference: chronyc(1), systemd-timesyncd.service(8)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.time_sync import TimeSync

ID, SEVERITY, NEEDS = "clock-unsynchronised", "warn", (TimeSync,)


def check(run: Subject) -> Iterator[Finding]:
    """Hosts whose time service says that it has no time."""
    state = {host.name: sync.synchronised for host, sync in run.each(TimeSync)}
    names = [name for name, synchronised in state.items() if synchronised is False]
    if names:
        yield Finding(message=f"not synchronised ({fold(names)})", hosts=names)
    silent = [name for name, synchronised in state.items() if synchronised is None]
    if silent:
        raise CannotTell(f"neither chrony nor systemd-timesyncd answers on {fold(silent)}")
