"""/sys/devices/system/cpu/cpu*/cpufreq: governor, driver and limits over all CPUs (admin-guide/pm/cpufreq)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import KIB, Facts, Glob, Pages, same
from rollbook.sources.text import last_part, tally, when

# Never scaling_cur_freq: on some kernels reading it waits 20 ms for every single CPU.
NAMES = (
    "scaling_governor",
    "scaling_driver",
    "scaling_min_freq",
    "scaling_max_freq",
    "cpuinfo_max_freq",
    "energy_performance_preference",
)


class Frequency(Facts):
    """Each setting's values with the number of CPUs that have it: more than one entry is a mixed host.

    Frequencies are in kHz. A plain VM has no cpufreq at all; energy preferences need a driver that knows them.
    """

    scaling_governor: Annotated[dict[str, int] | None, same()] = None
    scaling_driver: Annotated[dict[str, int] | None, same()] = None
    scaling_min_freq: Annotated[dict[str, int] | None, same("kHz")] = None
    scaling_max_freq: Annotated[dict[str, int] | None, same("kHz")] = None
    cpuinfo_max_freq: Annotated[dict[str, int] | None, same("kHz")] = None
    energy_performance_preference: Annotated[dict[str, int] | None, same()] = None


def parse(pages: Pages) -> Frequency:
    """One word per file and CPU."""
    found = {name: [text for path, text in pages.items() if last_part(path) == name] for name in NAMES}
    return Frequency(**{name: when(texts, tally) for name, texts in found.items()})


SOURCE = Glob([f"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}" for name in NAMES], parse, limit=4096 * KIB)
