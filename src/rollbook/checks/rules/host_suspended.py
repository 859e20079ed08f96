"""A host slept during the run: suspended, or its virtual machine was stopped and went on.

Why: Nothing ran on it meanwhile, while the clocks of others went on; what was measured has a hole.
Example: asleep for 40.2 s (node17)
Fix: Mask sleep.target and suspend.target; ask who runs the machine about snapshots and live migration; run again.
Reference: systemd-suspend.service(8)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Sampled, Subject
from rollbook.checks.times import span
from rollbook.records.findings import Finding
from rollbook.records.record import SeriesHost

ID, SEVERITY, NEEDS = "host-suspended", "fail", (SeriesHost, Sampled)


def check(run: Subject) -> Iterator[Finding]:
    """The sleeps that the samples of each host show."""
    for host in run.series:
        if sleeps := host.suspends:
            seconds = sum(sleep.by_ns for sleep in sleeps) / 1e9
            times = "" if len(sleeps) == 1 else f" in all, {len(sleeps)} times"
            yield Finding(
                message=f"asleep for {seconds:.1f} s{times} ({host.name})",
                hosts=[host.name],
                evidence={"seconds": seconds, **span(sleeps[0].at_ns - sleeps[0].by_ns, sleeps[-1].at_ns)},
            )
