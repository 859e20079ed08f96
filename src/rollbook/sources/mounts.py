"""/proc/mounts: mounted file systems in fstab(5) format; checks use `mountinfo` instead."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import KIB, Facts, File, info, key
from rollbook.sources.text import integer, lines_of, unescape


class Mount(Facts):
    """One mount. A mount point with several mounts has several rows."""

    device: Annotated[str, info()]
    mount_point: Annotated[str, key()]
    fs_type: Annotated[str, info()]
    options: Annotated[str, info()]
    dump_freq: Annotated[int, info()]
    pass_num: Annotated[int, info()]


def parse(text: str) -> list[Mount]:
    """Six fields separated by single blanks; blanks inside a field are escaped."""
    rows = []
    for line in lines_of(text):
        fields = line.split(" ")
        if len(fields) != 6:
            raise ParseError(f"{len(fields)} fields instead of 6: {line[:80]!r}")
        device, place, kind, options, dump, order = fields
        rows.append(Mount(unescape(device), unescape(place), kind, options, integer(dump), integer(order)))
    return rows


SOURCE = File("/proc/mounts", parse, limit=1024 * KIB)
