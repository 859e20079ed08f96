"""A single host has different hardware from a group of hosts.

Why: Hosts are grouped by machine and processor, so this host is not compared with any other. It may be the wrong
model, or a login node among compute nodes.
Example: hardware: Dell PowerEdge R7625, AMD EPYC 9654 on 31 of 32 hosts; Dell PowerEdge R7615, AMD EPYC 9654 on node17
Fix: If this is intended, name the groups: --group login=node17. Otherwise remove the host from the run.
Reference: rollbook check --group
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.checks.text import difference_text
from rollbook.errors import CannotTell, NotApplicable
from rollbook.hosts import fold
from rollbook.records.findings import Difference, Finding, Value
from rollbook.sources.cpuinfo import CpuInfo

ID, SEVERITY, NEEDS = "hardware-mismatch", "warn", (CpuInfo,)
MIN_GROUP = 3  # with fewer hosts there is no majority


def check(run: RunData) -> Iterator[Finding]:
    """Automatic groups of one host, if there is a larger group."""
    formed = sorted((group for group in run.groups if not group.is_named), key=lambda group: -len(group.hosts))
    if not formed or len(formed[0].hosts) < MIN_GROUP:
        raise NotApplicable(f"no group has {MIN_GROUP} hosts")
    # A host on which one of these was not read has an incomplete profile, and therefore its own group.
    unread = {name for source in ("dmi", "cpuinfo") for name in run.state(source).unread}
    values = [Value(group.profile, [host.name for host in group.hosts]) for group in formed]
    alone = [value.hosts[0] for value in values if len(value.hosts) == 1 and value.hosts[0] not in unread]
    if alone:
        difference = Difference("hardware", values)
        yield Finding(message=difference_text(difference), hosts=alone, differences=[difference])
    if unread:
        raise CannotTell(f"dmi or cpuinfo not read on {fold(unread)}")
