"""/sys/class/drm/card*/device: utilization and memory of AMD GPUs (gpu/amdgpu/driver-misc)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, gauge, key, same, unique
from rollbook.sources.text import devices, integer, optional

ROOT = "/sys/class/drm"


class AmdGpu(Facts):
    """One AMD GPU. Cards of other vendors have none of these files."""

    card: Annotated[str, key()]
    busy_percent: Annotated[int | None, gauge("%")] = None
    vram_used: Annotated[int | None, gauge("bytes")] = None
    vram_total: Annotated[int | None, same("bytes")] = None
    unique_id: Annotated[str | None, unique()] = None


def parse(pages: Pages) -> list[AmdGpu]:
    """One value per file; the utilization is unreadable while a card is suspended."""
    return [
        AmdGpu(
            card,
            optional(found.get("device/gpu_busy_percent"), integer),
            optional(found.get("device/mem_info_vram_used"), integer),
            optional(found.get("device/mem_info_vram_total"), integer),
            found.get("device/unique_id") or None,
        )
        for card, found in devices(pages, f"{ROOT}/")
    ]


SOURCE = Glob(
    [
        f"{ROOT}/card[0-9]*/device/{name}"
        for name in ("gpu_busy_percent", "mem_info_vram_used", "mem_info_vram_total", "unique_id")
    ],
    parse,
    every=1,
)
