"""/sys/bus/pci/devices/*/aer_dev_*: PCIe errors per device (PCI/pcieaer-howto)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import KIB, Facts, Glob, Pages, delta, key
from rollbook.sources.text import devices, integer, optional

ROOT = "/sys/bus/pci/devices"


class DeviceErrors(Facts):
    """Errors of one device since boot, bridges included: the port above a bad card often counts first."""

    slot: Annotated[str, key()]
    correctable: Annotated[int | None, delta()] = None
    nonfatal: Annotated[int | None, delta()] = None
    fatal: Annotated[int | None, delta()] = None


def total_of(text: str) -> int:
    """The number in the line `TOTAL_ERR_COR 0` that ends the list of error types."""
    total = re.search(r"^TOTAL_ERR_\w+ (\d+)$", text, re.MULTILINE | re.ASCII)
    if not total:
        raise ParseError(f"no total: {text[-40:]!r}")
    return integer(total[1])


def parse(pages: Pages) -> list[DeviceErrors]:
    """One file per severity, one line per type of error, then the total."""
    return [
        DeviceErrors(
            slot,
            optional(found.get("aer_dev_correctable"), total_of),
            optional(found.get("aer_dev_nonfatal"), total_of),
            optional(found.get("aer_dev_fatal"), total_of),
        )
        for slot, found in devices(pages, f"{ROOT}/")
    ]


SOURCE = Glob(
    [f"{ROOT}/*/aer_dev_{severity}" for severity in ("correctable", "nonfatal", "fatal")], parse, limit=4096 * KIB
)
