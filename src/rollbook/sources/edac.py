"""/sys/devices/system/edac/mc: memory errors per memory controller (admin-guide/RAS)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, delta, key, same
from rollbook.sources.text import devices, integer, optional

ROOT = "/sys/devices/system/edac/mc"


class MemoryController(Facts):
    """One controller: its memory, and corrected and uncorrected errors since its driver was loaded."""

    controller: Annotated[str, key()]
    name: Annotated[str | None, same()] = None
    size_mb: Annotated[int | None, same("MiB")] = None
    corrected: Annotated[int | None, delta()] = None
    uncorrected: Annotated[int | None, delta()] = None


def parse(pages: Pages) -> list[MemoryController]:
    """One value per file."""
    return [
        MemoryController(
            controller,
            found.get("mc_name") or None,
            optional(found.get("size_mb"), integer),
            optional(found.get("ce_count"), integer),
            optional(found.get("ue_count"), integer),
        )
        for controller, found in devices(pages, f"{ROOT}/")
    ]


SOURCE = Glob([f"{ROOT}/mc[0-9]*/{name}" for name in ("mc_name", "size_mb", "ce_count", "ue_count")], parse)
