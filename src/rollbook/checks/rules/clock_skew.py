"""The clocks of the hosts differ by more than the samples can bear.

Why: Times that hosts write themselves (logs, results, the start and end of a benchmark) cannot be laid over each
other. Rollbook's own series are corrected by the measured offset; the programs that ran are not.
Example: clock 1.834 s behind, measured within 0.4 ms (node17)
Fix: Start chronyd on the named hosts and run again.
Reference: chronyc(1), tracking
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.model import Finding
from rollbook.checks.subject import Subject
from rollbook.records.hosts import Clock

ID, SEVERITY, NEEDS = "clock-skew", "warn", (Clock,)
WITHOUT_SERIES = 1.0  # seconds, which is what most logs tell apart


def check(run: Subject) -> Iterator[Finding]:
    """The largest offset of each host, less what the measurement may be off, against a tenth of the interval."""
    bearable = (run.interval / 10 if run.interval else WITHOUT_SERIES) * 1e9
    measured: dict[str, list[Clock]] = {}
    for host in run.telling:
        if host.clock:
            measured.setdefault(host.name, []).append(host.clock)
    for series in run.series:
        measured.setdefault(series.name, []).extend(point.clock for point in series.clocks)
    for name, clocks in measured.items():
        worst = max(clocks, key=lambda clock: abs(clock.offset_ns) - clock.bound_ns, default=None)
        if worst and abs(worst.offset_ns) - worst.bound_ns > bearable:
            side = "behind" if worst.offset_ns > 0 else "ahead"
            yield Finding(
                message=f"clock {abs(worst.offset_ns) / 1e9:.3f} s {side}, "
                f"measured within {worst.bound_ns / 1e6:.1f} ms ({name})",
                hosts=[name],
                evidence={"offset_ns": worst.offset_ns, "bound_ns": worst.bound_ns, "bearable_ns": int(bearable)},
            )
