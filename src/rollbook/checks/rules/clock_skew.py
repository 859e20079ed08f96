"""The clock of a host differs from the collector's by more than the samples can bear.

Why: Times that hosts write themselves (logs, results, the start and end of a benchmark) cannot be laid over each
other. Rollbook's own series are corrected by the measured offset; the programs that ran are not.
Example: clock 1.834 s behind the collector's, measured within 0.4 ms (node17)
Fix: Start chronyd on the named hosts and run again. Where all differ by as much, it is the collector's that is off.
Reference: chronyc(1), tracking
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.checks.times import span
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.records.hosts import Clock
from rollbook.records.record import ClockPoint

ID, SEVERITY, NEEDS = "clock-skew", "warn", (Clock,)
WITHOUT_SERIES = 1.0  # seconds, which is what most logs tell apart


def check(run: Subject) -> Iterator[Finding]:
    """The largest offset of each host, less what the measurement may be off, against a tenth of the interval."""
    bearable = int((run.interval / 10 if run.interval else WITHOUT_SERIES) * 1e9)
    measured = {host.name: [ClockPoint(run.started_ns, host.clock)] for host in run.telling if host.clock}
    for series in run.series:
        measured.setdefault(series.name, []).extend(series.clocks)
    for name, points in measured.items():
        off = [point for point in points if _least(point.clock) > bearable]
        if off:
            worst = max((point.clock for point in off), key=_least)
            side = "behind" if worst.offset_ns > 0 else "ahead of"
            when = span(off[0].at_ns, off[-1].at_ns) if run.ended_ns else {}
            yield Finding(
                message=f"clock {abs(worst.offset_ns) / 1e9:.3f} s {side} the collector's, "
                f"measured within {worst.bound_ns / 1e6:.1f} ms ({name})",
                hosts=[name],
                evidence={"offset_ns": worst.offset_ns, "bound_ns": worst.bound_ns, "bearable_ns": bearable, **when},
            )
    silent = [host.name for host in run.telling if not measured.get(host.name)]
    if silent:
        raise CannotTell(f"no clock measured of {fold(silent)}")


def _least(clock: Clock) -> int:
    """What a clock is off by at least."""
    return abs(clock.offset_ns) - clock.bound_ns
