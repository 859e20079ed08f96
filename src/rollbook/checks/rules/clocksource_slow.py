"""A host uses a slow clock source.

Why: Reading hpet or acpi_pm takes a microsecond or more, and programs read the time with every request.
Example: clocksource: current hpet (node17)
Fix: Look for `clocksource: timekeeping watchdog` in the kernel log, update the firmware and reboot.
Reference: timers/timekeeping
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.clocksource import Clocksource

ID, SEVERITY, NEEDS = "clocksource-slow", "warn", (Clocksource,)
SLOW = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")


def check(run: RunData) -> Iterator[Finding]:
    """Hosts with a slow clock source; one finding per clock source."""
    found: dict[str, list[str]] = {}
    for host, clock in run.each(Clocksource):
        if clock.current in SLOW:
            found.setdefault(clock.current, []).append(host.name)
    for current, names in found.items():
        yield Finding(
            message=f"clocksource: current {current} ({fold(names)})", hosts=names, evidence={"clocksource": current}
        )
