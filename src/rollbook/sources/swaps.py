"""/proc/swaps: swap areas (proc_swaps(5))."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, gauge, key, same
from rollbook.sources.text import columns_of, integer, unescape


class Swap(Facts):
    """One swap area."""

    filename: Annotated[str, key()]
    kind: Annotated[str, same()]
    size_kib: Annotated[int, same("KiB")]
    used_kib: Annotated[int, gauge("KiB")]
    priority: Annotated[int, same()]


def parse(text: str) -> list[Swap]:
    """A header, then one line per area; a host without swap has only the header."""
    header, *lines = text.strip().split("\n")
    if not header.startswith("Filename"):
        raise ParseError(f"no header: {header[:80]!r}")
    rows = []
    for line in lines:
        name, kind, size, used, priority, *_ = columns_of(line, 5)
        rows.append(Swap(unescape(name), kind, integer(size), integer(used), integer(priority)))
    return rows


SOURCE = File("/proc/swaps", parse)
