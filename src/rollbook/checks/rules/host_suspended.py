"""A host was suspended during the run, or its virtual machine was paused.

Why: Nothing ran on the host during that time, so its measurements have a gap.
Example: suspended for 40.2 s (node17)
Fix: Mask sleep.target and suspend.target. For virtual machines, check for snapshots and live migration. Repeat the run.
Reference: systemd-suspend.service(8)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData, Samples
from rollbook.checks.times import span
from rollbook.records.findings import Finding
from rollbook.records.record import SeriesHost

ID, SEVERITY, NEEDS = "host-suspended", "fail", (SeriesHost, Samples)


def check(run: RunData) -> Iterator[Finding]:
    """Suspensions in the samples of each host."""
    for host in run.series:
        if sleeps := host.suspends:
            seconds = sum(sleep.by_ns for sleep in sleeps) / 1e9
            times = "" if len(sleeps) == 1 else f" in total, {len(sleeps)} times"
            yield Finding(
                message=f"suspended for {seconds:.1f} s{times} ({host.name})",
                hosts=[host.name],
                evidence={"seconds": seconds, **span(sleeps[0].at_ns - sleeps[0].by_ns, sleeps[-1].at_ns)},
            )
