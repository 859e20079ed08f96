"""The clock of a host, or of the machine that recorded, was stepped during the run.

Why: Durations that programs measured across the step are wrong, even negative. Rollbook's own samples are aligned by
the monotonic clock.
Example: clock stepped by +3.200 s (node17)
Fix: Configure chronyd to step only at boot (makestep), stop other programs that set the clock, and repeat the run.
Reference: chrony.conf(5), makestep
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollbook.checks.run_data import RunData, Samples
from rollbook.checks.times import span
from rollbook.records.findings import Finding
from rollbook.records.record import ClockJump, SeriesHost

ID, SEVERITY, NEEDS = "clock-stepped", "warn", (SeriesHost, Samples)


def check(run: RunData) -> Iterator[Finding]:
    """Clock steps in the samples of each host, and those of the collector in its journal."""
    for host in run.series:
        if host.clock_steps:
            yield _finding("", host.clock_steps, [host.name])
    if run.clock_steps:
        yield _finding("collector: ", run.clock_steps, [])


def _finding(where: str, steps: Sequence[ClockJump], hosts: list[str]) -> Finding:
    largest = max((step.by_ns for step in steps), key=abs)
    times = "" if len(steps) == 1 else f" at most, {len(steps)} times"
    names = f" ({hosts[0]})" if hosts else ""
    return Finding(
        message=f"{where}clock stepped by {largest / 1e9:+.3f} s{times}{names}",
        hosts=hosts,
        evidence={"by_ns": [step.by_ns for step in steps], **span(steps[0].at_ns, steps[-1].at_ns)},
    )
