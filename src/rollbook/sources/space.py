"""Size and free space of each mounted file system (statvfs(3)); servers that do not respond are skipped."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Order, Pages, Source, band, gauge, info, key
from rollbook.sources.text import bounded, columns_of, integer, unescape


class Space(Facts):
    """One file system. `available_bytes` is for unprivileged users; `free_bytes` includes the reserve for root.

    File systems that allocate inodes dynamically have no inode counts.
    """

    mount_point: Annotated[str, key()]
    total_bytes: Annotated[int, band(0.02, "bytes")]
    free_bytes: Annotated[int, gauge("bytes")]
    available_bytes: Annotated[int, gauge("bytes")]
    inodes: Annotated[int | None, info()] = None
    inodes_free: Annotated[int | None, gauge("inodes")] = None


def parse(pages: Pages) -> list[Space]:
    """One page per mount point: `bsize frsize blocks bfree bavail files ffree favail`, blocks of `frsize` bytes."""
    rows = []
    for place, text in pages.items():
        _, unit, blocks, free, available, inodes, inodes_free, *_ = [integer(w) for w in columns_of(text, 8)]
        if not blocks:  # a virtual file system without storage
            continue
        row = Space(unescape(place), *(bounded(count * unit) for count in (blocks, free, available)))
        if inodes:
            row.inodes, row.inodes_free = inodes, inodes_free
        rows.append(row)
    return rows


SOURCE = Source((Order("space"),), parse, list[Space], seconds=5)
