"""/sys/devices/system/node: CPUs, memory and distances of each NUMA node (ABI/stable/sysfs-devices-node)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, band, key, same
from rollbook.sources.text import devices, integer, members

ROOT = "/sys/devices/system/node"


class Node(Facts):
    """One node. Nodes without CPUs (CXL or HBM memory) or without memory (empty sockets) are normal."""

    node: Annotated[int, key()]
    cpus: Annotated[str | None, same()] = None
    cpu_count: Annotated[int | None, same("CPUs")] = None
    memory_kib: Annotated[int | None, band(0.02, "KiB")] = None
    distances: Annotated[list[int] | None, same()] = None


def parse(pages: Pages) -> list[Node]:
    """`cpulist` and `distance` have one line; `meminfo` contains `Node 0 MemTotal: 131072 kB`."""
    rows = []
    for name, found in devices(pages, f"{ROOT}/"):
        cpus, distances = found.get("cpulist"), found.get("distance")
        total = re.search(r"MemTotal:\s+(\d+) kB", found.get("meminfo", ""), re.ASCII)
        rows.append(
            Node(
                integer(name.removeprefix("node")),
                cpus,
                None if cpus is None else len(members(cpus)),
                integer(total[1]) if total else None,
                None if distances is None else [integer(word) for word in distances.split()],
            )
        )
    return sorted(rows, key=lambda row: row.node)


SOURCE = Glob([f"{ROOT}/node[0-9]*/{name}" for name in ("cpulist", "distance", "meminfo")], parse)
