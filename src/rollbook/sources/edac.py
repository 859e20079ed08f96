"""/sys/devices/system/edac/mc: memory errors per memory controller (admin-guide/RAS)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, delta, key, same
from rollbook.sources.text import devices, integer, when

ROOT = "/sys/devices/system/edac/mc"


class MemoryController(Facts):
    """One controller: corrected and uncorrected errors since its driver was loaded, and the memory behind it."""

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
            when(found.get("size_mb"), integer),
            when(found.get("ce_count"), integer),
            when(found.get("ue_count"), integer),
        )
        for controller, found in devices(pages, f"{ROOT}/")
    ]


SOURCE = Glob([f"{ROOT}/mc[0-9]*/{name}" for name in ("mc_name", "size_mb", "ce_count", "ue_count")], parse)
