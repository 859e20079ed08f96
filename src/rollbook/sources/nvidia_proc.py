"""/proc/driver/nvidia/gpus/*/information: GPUs as the kernel module knows them, also when nvidia-smi hangs."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, key, same, unique
from rollbook.sources.text import devices, fields_of

ROOT = "/proc/driver/nvidia/gpus"


class KnownGpu(Facts):
    """One GPU by its PCI address."""

    slot: Annotated[str, key()]
    model: Annotated[str | None, same()] = None
    uuid: Annotated[str | None, unique()] = None
    video_bios: Annotated[str | None, same()] = None
    firmware: Annotated[str | None, same()] = None
    excluded: Annotated[str | None, same()] = None


def parse(pages: Pages) -> list[KnownGpu]:
    """`Name: value` lines; question marks stand in for what an uninitialised GPU has not told yet."""
    rows = []
    for slot, found in devices(pages, f"{ROOT}/"):
        told = {name: value for name, value in fields_of(found["information"], ":").items() if "??" not in value}
        rows.append(
            KnownGpu(
                slot,
                told.get("Model") or None,
                told.get("GPU UUID") or None,
                told.get("Video BIOS") or None,
                told.get("GPU Firmware") or None,
                told.get("GPU Excluded") or None,
            )
        )
    return rows


SOURCE = Glob([f"{ROOT}/*/information"], parse)
