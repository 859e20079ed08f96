"""A host differs from its state in the baseline record.

Why: Updates, repairs and manual changes accumulate. What changed since the last good run is the first suspect when the
next run is slow.
Example: net_class eth0: mtu 9000 bytes -> 1500 bytes (node17)
Fix: Revert the change on the host, or record a new baseline if the change is intended.
Reference: rollbook check --baseline
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.changes import changes, unread_sources
from rollbook.checks.declared import IGNORED
from rollbook.checks.run_data import Baseline, HostData, RunData
from rollbook.checks.text import findings_by_changes, name_list
from rollbook.checks.views import COMPARED
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Change, Finding

ID, SEVERITY, NEEDS = "baseline-drift", "fail", (Baseline, HostData)


def check(run: RunData) -> Iterator[Finding]:
    """Compare each host with itself in the baseline; one finding per set of changes."""
    assert run.baseline is not None, "Baseline is in NEEDS"
    earlier = {host.name: host for host in run.baseline.hosts_with_data}
    changed: dict[str, list[Change]] = {}
    unread: dict[str, list[str]] = {}
    for host in run.hosts_with_data:
        if host.name in earlier:
            pair = (earlier[host.name], host)
            for source in unread_sources(*pair):
                unread.setdefault(source, []).append(host.name)
            compared = (change for change in changes(*pair) if change.mode in COMPARED)
            if found := [change for change in compared if change.field not in IGNORED]:
                changed[host.name] = found
    yield from findings_by_changes(changed)
    new = [host.name for host in run.hosts_with_data if host.name not in earlier]
    notes = [f"not in the baseline: {fold(new)}"] if new else []
    if unread:
        hosts = {name for names in unread.values() for name in names}
        notes.append(f"{name_list(list(unread))} not read on {fold(hosts)}")
    if notes:
        raise CannotTell("; ".join(notes))
