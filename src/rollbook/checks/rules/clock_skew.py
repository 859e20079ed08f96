"""The clock of a host differs from that of the collector by more than a tenth of the first interval, at most 1 s.

Why: Times in logs and results of different hosts cannot be compared. Rollbook corrects its own samples by the
measured offset, but not the output of other programs.
Example: clock is 1.834 s behind the collector, measured to 0.4 ms (node17)
Fix: Start chronyd on these hosts and repeat the run. If all hosts differ equally, correct the collector's clock.
Reference: chronyc(1), tracking
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.checks.times import span
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.records.hosts import Clock
from rollbook.records.record import ClockPoint

ID, SEVERITY, NEEDS = "clock-skew", "warn", (Clock,)
RESOLUTION = 1.0  # seconds, of most logs


def check(run: RunData) -> Iterator[Finding]:
    """Compare the largest offset of each host, minus the measurement error, with a tenth of the first interval.

    The interval of a long run grows; what is wrong with its logs does not depend on that.
    """
    first = run.hosts.first_interval_seconds or run.interval
    limit = int(min(RESOLUTION, first / 10 if first else RESOLUTION) * 1e9)
    measured = {host.name: [ClockPoint(run.started_ns, host.clock)] for host in run.hosts_with_data if host.clock}
    for series in run.series:
        measured.setdefault(series.name, []).extend(series.clocks)
    for name, points in measured.items():
        off = [point for point in points if _least(point.clock) > limit]
        if off:
            worst = max((point.clock for point in off), key=_least)
            side = "behind" if worst.offset_ns > 0 else "ahead of"
            when = span(off[0].at_ns, off[-1].at_ns) if run.ended_ns else {}
            yield Finding(
                message=f"clock is {abs(worst.offset_ns) / 1e9:.3f} s {side} the collector, "
                f"measured to {worst.bound_ns / 1e6:.1f} ms ({name})",
                hosts=[name],
                evidence={"offset_ns": worst.offset_ns, "bound_ns": worst.bound_ns, "limit_ns": limit, **when},
            )
    missing = [host.name for host in run.hosts_with_data if not measured.get(host.name)]
    if missing:
        raise CannotTell(f"no clock offset measured on {fold(missing)}")


def _least(clock: Clock) -> int:
    """The smallest possible offset of a clock."""
    return abs(clock.offset_ns) - clock.bound_ns
