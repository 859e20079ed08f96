"""/proc/self/limits: resource limits a job would start with (getrlimit(2))."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import File, Record, info, key, same
from rollbook.sources.text import integer, lines_of

SHORT = {
    "cpu time": "cpu",
    "file size": "fsize",
    "data size": "data",
    "stack size": "stack",
    "core file size": "core",
    "resident set": "rss",
    "processes": "nproc",
    "open files": "nofile",
    "locked memory": "memlock",
    "address space": "as",
    "file locks": "locks",
    "pending signals": "sigpending",
    "msgqueue size": "msgqueue",
    "nice priority": "nice",
    "realtime priority": "rtprio",
    "realtime timeout": "rttime",
}


class Limit(Record):
    """One limit under its name in limits.conf(5). The kernel sets every limit: null is unlimited."""

    resource: Annotated[str, key()]
    soft: Annotated[int | None, same()]
    hard: Annotated[int | None, same()]
    unit: Annotated[str, info()]


def parse(text: str) -> list[Limit]:
    """A header, then `Max NAME`, soft, hard and unit in columns parted by at least two blanks."""
    rows = []
    for line in lines_of(text)[1:]:
        found = re.fullmatch(r"Max (\S+(?: \S+)*)\s{2,}(\S+)\s+(\S+)\s*(\S*)\s*", line)
        if not found:
            raise ParseError(f"not a limit: {line[:80]!r}")
        soft, hard = (None if word == "unlimited" else integer(word) for word in found.group(2, 3))
        rows.append(Limit(SHORT.get(found[1], found[1]), soft, hard, found[4]))
    return rows


SOURCE = File("/proc/self/limits", parse)
