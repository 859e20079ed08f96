"""/proc/self/limits: resource limits of a process started on the host (getrlimit(2))."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, info, key, same
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


class Limit(Facts):
    """One limit with its name in limits.conf(5); null means unlimited."""

    resource: Annotated[str, key()]
    soft: Annotated[int | None, same()]
    hard: Annotated[int | None, same()]
    unit: Annotated[str, info()]


def parse(text: str) -> list[Limit]:
    """A header, then `Max NAME` in the first 25 characters, soft limit, hard limit and an optional unit."""
    rows = []
    for line in lines_of(text)[1:]:
        name, words = line[:25].strip(), line[25:].split()
        if not name.startswith("Max ") or len(words) not in (2, 3):
            raise ParseError(f"not a limit: {line[:80]!r}")
        soft, hard = (None if word == "unlimited" else integer(word) for word in words[:2])
        name = name.removeprefix("Max ")
        rows.append(Limit(SHORT.get(name, name), soft, hard, "".join(words[2:])))
    return rows


SOURCE = File("/proc/self/limits", parse)
