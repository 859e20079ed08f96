"""One host alone is of other hardware than a whole group of others.

Why: Groups are formed by machine and processor; a host that is alone in its group is compared with nobody. It may be
a wrong delivery, or a login node among workers.
Example: 31 of 32: Dell PowerEdge R7625, AMD EPYC 9654; node17: Dell PowerEdge R7615, AMD EPYC 9654
Fix: If it is meant, name the groups: --group login=node17. Else leave the host out.
Reference: rollbook check --group
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.checks.text import difference_text
from rollbook.errors import CannotTell, NotApplicable
from rollbook.hosts import fold
from rollbook.records.findings import Difference, Finding, Value
from rollbook.sources.cpuinfo import CpuInfo

ID, SEVERITY, NEEDS = "hardware-mismatch", "warn", (CpuInfo,)
CROWD = 3  # with fewer, nobody is the odd one


def check(run: Subject) -> Iterator[Finding]:
    """Automatic groups of one host, beside a larger group."""
    formed = sorted((group for group in run.groups if not group.chosen), key=lambda group: -len(group.hosts))
    if not formed or len(formed[0].hosts) < CROWD:
        raise NotApplicable(f"no group of {CROWD} hosts to stand out from")
    # A host of which either was not read is in a group of its own for that alone.
    silent = {name for source in ("dmi", "cpuinfo") for name in run.states(source).unknown}
    values = [Value(group.profile, [host.name for host in group.hosts]) for group in formed]
    alone = [value.hosts[0] for value in values if len(value.hosts) == 1 and value.hosts[0] not in silent]
    if alone:
        told = Difference("hardware", values)
        yield Finding(message=difference_text(told), hosts=alone, differences=[told])
    if silent:
        raise CannotTell(f"dmi or cpuinfo not read on {fold(silent)}")
