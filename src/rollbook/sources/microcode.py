"""/sys/devices/system/cpu/cpu*/microcode/version: microcode revisions (x86; root only on older kernels)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, same
from rollbook.sources.text import tally


class Microcode(Facts):
    """The number of CPUs per revision. In a virtual machine the hypervisor sets the value."""

    versions: Annotated[dict[str, int], same()]


def parse(pages: Pages) -> Microcode:
    """One hexadecimal number per CPU."""
    return Microcode(tally(pages.values()))


SOURCE = Glob(["/sys/devices/system/cpu/cpu[0-9]*/microcode/version"], parse)
