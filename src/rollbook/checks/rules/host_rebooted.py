"""A host rebooted during the run.

Why: Its processes ended, its page cache was emptied, and its counters restarted at zero.
Example: rebooted: boot id changed from 5d0c… to 91ab… (node17)
Fix: Find the cause (last -x, BMC log, kdump) and repeat the run.
Reference: proc_sys_kernel(5), random/boot_id
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import EndFacts, HostData, RunData
from rollbook.checks.times import span
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.records.hosts import HostResult
from rollbook.sources.identity import Identity

ID, SEVERITY, NEEDS = "host-rebooted", "fail", (EndFacts, HostData)


def check(run: RunData) -> Iterator[Finding]:
    """Hosts with several boot ids at start, in the series and at the end."""
    after = {host.name: host for host in run.end if host.gave_data}
    between = {host.name: host.boot_ids for host in run.series}
    gaps_by_host = {host.name: [gap for gap in host.gaps if gap.why == "rebooted"] for host in run.series}
    unread = []
    for host in run.hosts_with_data:
        last = _boot_id(after[host.name]) if host.name in after else None
        seen = list(dict.fromkeys(boot for boot in (_boot_id(host), *between.get(host.name, []), last) if boot))
        if len(seen) > 1:
            gaps = gaps_by_host.get(host.name, [])
            yield Finding(
                message=f"rebooted: boot id changed from {seen[0]} to {seen[-1]} ({host.name})",
                hosts=[host.name],
                evidence={"boot_ids": seen, **(span(gaps[0].start_ns, gaps[-1].end_ns) if gaps else {})},
            )
        elif last is None:
            unread.append(host.name)
    if unread:
        raise CannotTell(f"no boot id at the end on {fold(unread)}")


def _boot_id(host: HostResult) -> str | None:
    identity = host.fact(Identity)
    return identity.boot_id if identity and identity.boot_id else host.boot_id
