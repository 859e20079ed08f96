"""/proc/driver/nvidia/gpus/*/information: NVIDIA GPUs, readable even if nvidia-smi hangs."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, key, same, unique
from rollbook.sources.text import devices, fields_of

ROOT = "/proc/driver/nvidia/gpus"


class DriverGpu(Facts):
    """One GPU, named by its PCI address."""

    slot: Annotated[str, key()]
    model: Annotated[str | None, same()] = None
    uuid: Annotated[str | None, unique()] = None
    video_bios: Annotated[str | None, same()] = None
    firmware: Annotated[str | None, same()] = None
    excluded: Annotated[str | None, same()] = None


def parse(pages: Pages) -> list[DriverGpu]:
    """`Name: value` lines; values with `??` are unknown because the GPU is not initialised."""
    rows = []
    for slot, found in devices(pages, f"{ROOT}/"):
        values = {name: value for name, value in fields_of(found["information"], ":").items() if "??" not in value}
        rows.append(
            DriverGpu(
                slot,
                values.get("Model") or None,
                values.get("GPU UUID") or None,
                values.get("Video BIOS") or None,
                values.get("GPU Firmware") or None,
                values.get("GPU Excluded") or None,
            )
        )
    return rows


SOURCE = Glob([f"{ROOT}/*/information"], parse)
