"""/sys/devices/system/edac/mc/*/dimm*: memory errors per DIMM (admin-guide/RAS)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, delta, info, key, same
from rollbook.sources.text import integer, optional

ROOT = "/sys/devices/system/edac/mc"
NAMES = ("dimm_label", "dimm_mem_type", "size", "dimm_ce_count", "dimm_ue_count")
PATH = re.compile(rf"{ROOT}/(mc\d+/(?:dimm|rank)\d+)/(\w+)", re.ASCII)


class Dimm(Facts):
    """One DIMM. The label comes from the driver, unless the site has registered the board's slot names."""

    dimm: Annotated[str, key()]
    label: Annotated[str | None, info()] = None
    memory_type: Annotated[str | None, same()] = None
    size_mb: Annotated[int | None, same("MiB")] = None
    corrected: Annotated[int | None, delta()] = None
    uncorrected: Annotated[int | None, delta()] = None


def parse(pages: Pages) -> list[Dimm]:
    """One value per file; rows are named `mc0/dimm3`."""
    grouped: dict[str, dict[str, str]] = {}
    for path, text in pages.items():
        if found := PATH.fullmatch(path):
            grouped.setdefault(found[1], {})[found[2]] = text.strip()
    return [
        Dimm(
            name,
            one.get("dimm_label") or None,
            one.get("dimm_mem_type") or None,
            optional(one.get("size"), integer),
            optional(one.get("dimm_ce_count"), integer),
            optional(one.get("dimm_ue_count"), integer),
        )
        for name, one in sorted(grouped.items())
    ]


# Drivers that cannot identify single DIMMs report ranks.
SOURCE = Glob([f"{ROOT}/mc[0-9]*/{kind}[0-9]*/{name}" for kind in ("dimm", "rank") for name in NAMES], parse)
