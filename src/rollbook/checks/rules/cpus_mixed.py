"""CPUs of one host have different frequency settings.

Why: Ranks on the slow cores delay all others, while the average of the host looks normal.
Example: cpufreq: scaling_governor 94 × performance 2 × powersave (node17)
Fix: Set the same governor and energy preference for all CPUs (cpupower -c all).
Reference: admin-guide/pm/cpufreq
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.checks.text import value_text
from rollbook.records.findings import Finding
from rollbook.sources.cpufreq import Frequency

ID, SEVERITY, NEEDS = "cpus-mixed", "warn", (Frequency,)
# Without frequencies, which may differ by design (E-cores, preferred cores).
FIELDS = ("scaling_governor", "scaling_driver", "energy_performance_preference")


def check(run: RunData) -> Iterator[Finding]:
    """Settings with several values on one host."""
    for host, frequency in run.each(Frequency):
        for field in FIELDS:
            tally = getattr(frequency, field)
            if tally and len(tally) > 1:
                yield Finding(
                    message=f"cpufreq: {field} {value_text(tally)} ({host.name})",
                    hosts=[host.name],
                    evidence={"field": field, "cpus": tally},
                )
