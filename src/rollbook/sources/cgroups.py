"""/proc/cgroups: cgroup controllers of the kernel (cgroups(7))."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, File, gauge, info, key, same
from rollbook.sources.text import columns_of, integer, lines_of


class Subsystem(Facts):
    """One controller; hierarchy 0 means version 2 or not mounted."""

    subsys_name: Annotated[str, key()]
    hierarchy: Annotated[int, info()]
    num_cgroups: Annotated[int, gauge("cgroups")]
    enabled: Annotated[bool, same()]


def parse(text: str) -> list[Subsystem]:
    """A header that starts with `#`, then `name hierarchy count enabled`."""
    rows = []
    for line in lines_of(text):
        if not line.startswith("#"):
            name, hierarchy, count, enabled, *_ = columns_of(line, 4)
            rows.append(Subsystem(name, integer(hierarchy), integer(count), integer(enabled) == 1))
    return rows


SOURCE = File("/proc/cgroups", parse)
