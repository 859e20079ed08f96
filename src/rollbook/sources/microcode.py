"""/sys/devices/system/cpu/cpu*/microcode/version: microcode revisions over all CPUs (x86; older kernels: root)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, same
from rollbook.sources.text import tally


class Microcode(Facts):
    """Revisions with the number of CPUs that run them. A VM shows what its hypervisor invents."""

    versions: Annotated[dict[str, int], same()]


def parse(pages: Pages) -> Microcode:
    """One hexadecimal number per CPU."""
    return Microcode(tally(pages.values()))


SOURCE = Glob(["/sys/devices/system/cpu/cpu[0-9]*/microcode/version"], parse)
