"""/sys/devices/system/cpu/cpu*/cpufreq: frequency governor, driver and limits (admin-guide/pm/cpufreq)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import KIB, Facts, Glob, Pages, same
from rollbook.sources.text import last_part, optional, tally

# Not scaling_cur_freq: on some kernels reading it takes 20 ms per CPU.
NAMES = (
    "scaling_governor",
    "scaling_driver",
    "scaling_min_freq",
    "scaling_max_freq",
    "cpuinfo_max_freq",
    "energy_performance_preference",
)


class Frequency(Facts):
    """For each setting, the number of CPUs per value; several entries mean that CPUs are set differently.

    Frequencies are in kHz. Most virtual machines have no cpufreq; energy preferences depend on the driver.
    """

    scaling_governor: Annotated[dict[str, int] | None, same()] = None
    scaling_driver: Annotated[dict[str, int] | None, same()] = None
    scaling_min_freq: Annotated[dict[str, int] | None, same("kHz")] = None
    scaling_max_freq: Annotated[dict[str, int] | None, same("kHz")] = None
    cpuinfo_max_freq: Annotated[dict[str, int] | None, same("kHz")] = None
    energy_performance_preference: Annotated[dict[str, int] | None, same()] = None


def parse(pages: Pages) -> Frequency:
    """One value per file and CPU."""
    found = {name: [text for path, text in pages.items() if last_part(path) == name] for name in NAMES}
    return Frequency(**{name: optional(texts, tally) for name, texts in found.items()})


SOURCE = Glob([f"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}" for name in NAMES], parse, limit=4096 * KIB)
