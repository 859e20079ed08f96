"""CPUs of one host are set differently.

Why: Ranks on the slow cores hold up the others. The mean over the host looks fine.
Example: scaling_governor: 94 × performance 2 × powersave (node17)
Fix: Set governor and limits for all CPUs (cpupower -c all); microcode of one version needs a boot.
Reference: admin-guide/pm/cpufreq
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.checks.text import value_text
from rollbook.records.findings import Finding
from rollbook.sources.cpufreq import Frequency

ID, SEVERITY, NEEDS = "cpus-mixed", "warn", (Frequency,)
# Not the frequencies: cores of one processor may differ by design (Intel's E-cores, preferred cores).
FIELDS = ("scaling_governor", "scaling_driver", "energy_performance_preference")


def check(run: Subject) -> Iterator[Finding]:
    """Settings with more than one value over the CPUs of a host."""
    for host, frequency in run.each(Frequency):
        for field in FIELDS:
            tally = getattr(frequency, field)
            if tally and len(tally) > 1:
                yield Finding(
                    message=f"{field}: {value_text(tally)} ({host.name})",
                    hosts=[host.name],
                    evidence={"field": field, "cpus": tally},
                )
