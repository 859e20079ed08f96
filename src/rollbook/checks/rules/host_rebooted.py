"""A host booted during the run.

Why: Its processes were gone for minutes, its page cache is empty, its counters began anew.
Example: boot id 5d0c… at first, then 91ab… (node17)
Fix: Find the cause (last -x, the BMC's log, kdump) and run again.
Reference: proc_sys_kernel(5), random/boot_id
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Ended, Subject, Told
from rollbook.checks.times import span
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.records.hosts import HostResult
from rollbook.sources.identity import Identity

ID, SEVERITY, NEEDS = "host-rebooted", "fail", (Ended, Told)


def check(run: Subject) -> Iterator[Finding]:
    """Boot ids of start, series and end: more than one is a boot."""
    after = {host.name: host for host in run.end if host.gave_data}
    between = {host.name: host.boot_ids for host in run.series}
    away = {host.name: [gap for gap in host.gaps if gap.why == "rebooted"] for host in run.series}
    silent = []
    for host in run.telling:
        last = _boot_id(after[host.name]) if host.name in after else None
        seen = list(dict.fromkeys(boot for boot in (_boot_id(host), *between.get(host.name, []), last) if boot))
        if len(seen) > 1:
            gaps = away.get(host.name, [])
            yield Finding(
                message=f"boot id {seen[0]} at first, then {seen[-1]} ({host.name})",
                hosts=[host.name],
                evidence={"boot_ids": seen, **(span(gaps[0].start_ns, gaps[-1].end_ns) if gaps else {})},
            )
        elif last is None:
            silent.append(host.name)
    if silent:
        raise CannotTell(f"no boot id at the end of {fold(silent)}")


def _boot_id(host: HostResult) -> str | None:
    identity = host.fact(Identity)
    return identity.boot_id if identity and identity.boot_id else host.boot_id
