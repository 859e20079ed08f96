"""The clock of a host is not synchronised.

Why: It drifts by seconds per day, and times in logs and results of different hosts cannot be compared.
Example: clock is not synchronised (node17)
Fix: Run `systemctl enable --now chronyd`; `chronyc sources` shows whether it reaches its servers.
Reference: chronyc(1), systemd-timesyncd.service(8)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.time_sync import TimeSync

ID, SEVERITY, NEEDS = "clock-unsynchronised", "warn", (TimeSync,)


def check(run: RunData) -> Iterator[Finding]:
    """Hosts whose time daemon reports that it is not synchronised."""
    state = {host.name: sync.synchronised for host, sync in run.each(TimeSync)}
    names = [name for name, synchronised in state.items() if synchronised is False]
    if names:
        yield Finding(message=f"clock is not synchronised ({fold(names)})", hosts=names)
    unknown = [name for name, synchronised in state.items() if synchronised is None]
    if unknown:
        raise CannotTell(f"neither chrony nor systemd-timesyncd responds on {fold(unknown)}")
