"""/proc/mounts: mounted file systems in the form of fstab(5); `mountinfo` says more and is the one compared."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import KIB, Facts, File, info, key
from rollbook.sources.text import integer, lines_of, unescape


class Mount(Facts):
    """One line. A place mounted over has several."""

    device: Annotated[str, info()]
    mount_point: Annotated[str, key()]
    fs_type: Annotated[str, info()]
    options: Annotated[str, info()]
    dump_freq: Annotated[int, info()]
    pass_num: Annotated[int, info()]


def parse(text: str) -> list[Mount]:
    """Six fields parted by single blanks; blanks inside a field come escaped."""
    rows = []
    for line in lines_of(text):
        fields = line.split(" ")
        if len(fields) != 6:
            raise ParseError(f"{len(fields)} fields instead of 6: {line[:80]!r}")
        device, place, kind, options, dump, order = fields
        rows.append(Mount(unescape(device), unescape(place), kind, options, integer(dump), integer(order)))
    return rows


SOURCE = File("/proc/mounts", parse, limit=1024 * KIB)
