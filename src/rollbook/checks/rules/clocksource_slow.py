"""A host counts time by a slow hardware clock although it has a fast one.

Why: Reading hpet or acpi_pm takes a microsecond or more and locks the bus; programs ask for the time on every request.
Example: hpet (node17)
Fix: Look for `clocksource: timekeeping watchdog` in the kernel log; update firmware; boot.
Reference: timers/timekeeping
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.clocksource import Clocksource

ID, SEVERITY, NEEDS = "clocksource-slow", "warn", (Clocksource,)
SLOW = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")


def check(run: Subject) -> Iterator[Finding]:
    """Hosts on a slow clock, those with one clock together."""
    found: dict[str, list[str]] = {}
    for host, clock in run.each(Clocksource):
        if clock.current in SLOW:
            found.setdefault(clock.current, []).append(host.name)
    for current, names in found.items():
        yield Finding(message=f"{current} ({fold(names)})", hosts=names, evidence={"clocksource": current})
