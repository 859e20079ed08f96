"""/sys/kernel/debug/lustre/llite: operations and bytes per Lustre mount (lctl-get_param(8))."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Glob, Pages, counter, info, key
from rollbook.sources.text import devices, integer, lines_of

PARENTS = ("/sys/kernel/debug/lustre/llite/", "/proc/fs/lustre/llite/")
LINE = re.compile(r"(\w+)\s+(\d+) samples \[(\w+)\]((?:\s+\d+)*)\s*", re.ASCII)


class LustreStats(Facts):
    """One operation of one mount: its count, and the sum in its unit (bytes, usec) if it has one."""

    file_system: Annotated[str, key()]
    instance: Annotated[str, key()]
    operation: Annotated[str, key()]
    samples: Annotated[int, counter("events")]
    unit: Annotated[str, info()]
    minimum: Annotated[int | None, info()] = None
    maximum: Annotated[int | None, info()] = None
    sum: Annotated[int | None, counter("")] = None


def parse(pages: Pages) -> list[LustreStats]:
    """`name count samples [unit] minimum maximum sum sum-of-squares`; plain counters end after the unit."""
    rows = []
    for parent in PARENTS:
        for device, attributes in devices(pages, parent):
            file_system, _, instance = device.rpartition("-")
            for line in lines_of(attributes["stats"]):
                if line.startswith(("snapshot_time", "start_time", "elapsed_time")):
                    continue
                found = LINE.fullmatch(line)
                if not found:
                    raise ParseError(f"not a line of statistics: {line[:80]!r}")
                numbers = [integer(word) for word in found[4].split()[:3]]
                rows.append(LustreStats(file_system, instance, found[1], integer(found[2]), found[3], *numbers))
    return rows


SOURCE = Glob([f"{parent}*/stats" for parent in PARENTS], parse, every=10)
