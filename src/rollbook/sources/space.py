"""Size and free space of each mounted file system (statvfs(3)); a server that does not answer is passed over."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Ask, Facts, Pages, Source, band, gauge, info, key
from rollbook.sources.text import bounded, columns_of, integer, unescape


class Space(Facts):
    """One file system. Available is what a user without privileges can fill; free counts the reserve too.

    File systems that make inodes as they go have no number of them.
    """

    mount_point: Annotated[str, key()]
    total_bytes: Annotated[int, band(0.02, "bytes")]
    free_bytes: Annotated[int, gauge("bytes")]
    available_bytes: Annotated[int, gauge("bytes")]
    inodes: Annotated[int | None, info()] = None
    inodes_free: Annotated[int | None, gauge("inodes")] = None


def parse(pages: Pages) -> list[Space]:
    """A page per mount point: `bsize frsize blocks bfree bavail files ffree favail`, blocks of `frsize` bytes."""
    rows = []
    for place, text in pages.items():
        _, unit, blocks, free, available, inodes, inodes_free, *_ = [integer(w) for w in columns_of(text, 8)]
        if not blocks:  # nothing can be stored there
            continue
        row = Space(unescape(place), *(bounded(count * unit) for count in (blocks, free, available)))
        if inodes:
            row.inodes, row.inodes_free = inodes, inodes_free
        rows.append(row)
    return rows


SOURCE = Source((Ask("space"),), parse, list[Space], seconds=5)
