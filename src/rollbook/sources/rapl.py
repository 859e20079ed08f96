"""/sys/class/powercap/intel-rapl*: energy of CPU packages and memory, Intel and AMD (power/powercap)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, counter, info, key
from rollbook.sources.text import devices, integer, optional

ROOT = "/sys/class/powercap"


class Zone(Facts):
    """One zone: `intel-rapl:0` is a package, `intel-rapl:0:0` a part of it (`core`) or its memory (`dram`).

    The counter wraps at `max_energy_range_uj`, within minutes at full load. Since Linux 5.10 it is root only.
    """

    zone: Annotated[str, key()]
    name: Annotated[str | None, info()] = None
    energy_uj: Annotated[int | None, counter("µJ", wraps="max_energy_range_uj")] = None
    max_energy_range_uj: Annotated[int | None, info()] = None


def parse(pages: Pages) -> list[Zone]:
    """One value per file."""
    return [
        Zone(
            zone,
            found.get("name") or None,
            optional(found.get("energy_uj"), integer),
            optional(found.get("max_energy_range_uj"), integer),
        )
        for zone, found in devices(pages, f"{ROOT}/")
    ]


SOURCE = Glob([f"{ROOT}/intel-rapl:*/{name}" for name in ("name", "energy_uj", "max_energy_range_uj")], parse, every=10)
