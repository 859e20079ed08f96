"""Somebody set the clock of a host during the run.

Why: Times that programs took before and after do not belong together: durations come out wrong, or less than nothing.
Rollbook's own series are laid right by the monotonic clock.
Example: clock set by +3.200 s at one moment of the run (node17)
Fix: Let chronyd slew from boot on (makestep only in its first updates), end other programs that set clocks, run again.
Reference: chrony.conf(5), makestep
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Sampled, Subject
from rollbook.checks.times import span
from rollbook.records.findings import Finding
from rollbook.records.record import SeriesHost

ID, SEVERITY, NEEDS = "clock-stepped", "warn", (SeriesHost, Sampled)


def check(run: Subject) -> Iterator[Finding]:
    """The steps that the samples of each host show."""
    for host in run.series:
        if steps := host.clock_steps:
            largest = max((step.by_ns for step in steps), key=abs)
            moments = "at one moment" if len(steps) == 1 else f"at the most, at {len(steps)} moments"
            yield Finding(
                message=f"clock set by {largest / 1e9:+.3f} s {moments} of the run ({host.name})",
                hosts=[host.name],
                evidence={"by_ns": [step.by_ns for step in steps], **span(steps[0].at_ns, steps[-1].at_ns)},
            )
