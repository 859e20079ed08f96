"""/sys/kernel/mm/hugepages: reserved huge pages per page size (admin-guide/mm/hugetlbpage)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Glob, Pages, gauge, key, same
from rollbook.sources.text import devices, integer

ROOT = "/sys/kernel/mm/hugepages/"


class HugePagePool(Facts):
    """The pool of one page size."""

    size_kib: Annotated[int, key()]
    total: Annotated[int, same("pages")]
    free: Annotated[int | None, gauge("pages")] = None
    overcommit: Annotated[int | None, same("pages")] = None


def parse(pages: Pages) -> list[HugePagePool]:
    """Directories `hugepages-2048kB` with one number per file."""
    rows = []
    for name, files in devices(pages, ROOT):
        size = re.fullmatch(r"hugepages-(\d{1,12})kB", name, re.ASCII)
        if not size:
            raise ParseError(f"not a huge page size: {name[:40]!r}")
        found = {file: integer(text) for file, text in files.items()}
        rows.append(
            HugePagePool(
                integer(size[1]),
                found["nr_hugepages"],
                found.get("free_hugepages"),
                found.get("nr_overcommit_hugepages"),
            )
        )
    return sorted(rows, key=lambda row: row.size_kib)


SOURCE = Glob([f"{ROOT}*/{file}" for file in ("nr_hugepages", "free_hugepages", "nr_overcommit_hugepages")], parse)
