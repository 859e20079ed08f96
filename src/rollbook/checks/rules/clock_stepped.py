"""The clock of a host was stepped during the run.

Why: Durations that programs measured across the step are wrong, even negative. Rollbook's own samples are aligned by
the monotonic clock.
Example: clock stepped by +3.200 s (node17)
Fix: Configure chronyd to step only at boot (makestep), stop other programs that set the clock, and repeat the run.
Reference: chrony.conf(5), makestep
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData, Samples
from rollbook.checks.times import span
from rollbook.records.findings import Finding
from rollbook.records.record import SeriesHost

ID, SEVERITY, NEEDS = "clock-stepped", "warn", (SeriesHost, Samples)


def check(run: RunData) -> Iterator[Finding]:
    """Clock steps in the samples of each host."""
    for host in run.series:
        if steps := host.clock_steps:
            largest = max((step.by_ns for step in steps), key=abs)
            times = "" if len(steps) == 1 else f" at most, {len(steps)} times"
            yield Finding(
                message=f"clock stepped by {largest / 1e9:+.3f} s{times} ({host.name})",
                hosts=[host.name],
                evidence={"by_ns": [step.by_ns for step in steps], **span(steps[0].at_ns, steps[-1].at_ns)},
            )
