"""/sys/class/iommu and /sys/kernel/iommu_groups: IOMMUs and their translation mode (driver-api/vfio)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.sources.base import Facts, Glob, Pages, same
from rollbook.sources.text import last_part, tally

UNITS, GROUPS = "/sys/class/iommu", "/sys/kernel/iommu_groups"


class Iommu(Facts):
    """IOMMU units, and the number of groups per domain type.

    `identity` means no translation; `DMA` and `DMA-FQ` translate, which slows small transfers.
    """

    units: Annotated[list[str], same()] = msgspec.field(default_factory=list)
    domain_types: Annotated[dict[str, int], same()] = msgspec.field(default_factory=dict)


def parse(pages: Pages) -> Iommu:
    """Links named after the units (`dmar0`, `ivhd0`, `smmu3.0x…`), and one type per group."""
    units = sorted(last_part(path) for path in pages if path.startswith(f"{UNITS}/"))
    return Iommu(units, tally(text for path, text in pages.items() if path.startswith(f"{GROUPS}/")))


SOURCE = Glob([f"{GROUPS}/*/type"], parse, links=[f"{UNITS}/*"])
