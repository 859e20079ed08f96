"""/proc/meminfo: memory by use (proc_meminfo(5))."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, band, columns, gauge, same
from rollbook.sources.text import fields_of, integer


class MemInfo(Facts):
    """All lines with the kernel's names in `kib` and `counts`, and four fields that hosts are compared by."""

    # Firmware and crash kernel reserve slightly different sizes on equal hosts; a lost DIMM is a larger difference.
    total_kib: Annotated[int, band(0.02, "KiB")]
    kib: Annotated[dict[str, int], columns(gauge("KiB"))]
    counts: Annotated[dict[str, int], columns(gauge("pages"))]
    swap_total_kib: Annotated[int | None, same("KiB")] = None
    huge_pages_total: Annotated[int | None, same("pages")] = None
    huge_page_kib: Annotated[int | None, same("KiB")] = None


def parse(text: str) -> MemInfo:
    """`Name: number kB` is a size; lines without a unit (`HugePages_*`) count huge pages."""
    kib: dict[str, int] = {}
    counts: dict[str, int] = {}
    for name, value in fields_of(text, ":").items():
        size, *unit = value.split()
        if unit not in ([], ["kB"]):
            raise ParseError(f"unknown unit of {name}: {value[:40]!r}")
        (kib if unit else counts)[name] = integer(size)
    return MemInfo(
        kib["MemTotal"],
        kib,
        counts,
        swap_total_kib=kib.get("SwapTotal"),
        huge_pages_total=counts.get("HugePages_Total"),
        huge_page_kib=kib.get("Hugepagesize"),
    )


SOURCE = File(
    "/proc/meminfo",
    parse,
    every=1,
    plain_numbers=True,
    lines=("MemTotal:", "SwapTotal:", "HugePages_Total:", "Hugepagesize:"),
)
