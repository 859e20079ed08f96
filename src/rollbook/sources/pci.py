"""/sys/bus/pci/devices: PCIe storage, network and accelerator devices (ABI/testing/sysfs-bus-pci)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.sources.base import KIB, Facts, Glob, Pages, gauge, key, same
from rollbook.sources.text import devices, integer, last_part, natural, number, optional

ROOT = "/sys/bus/pci/devices"
NAMES = (
    "class",
    "vendor",
    "device",
    "numa_node",
    "current_link_speed",
    "max_link_speed",
    "current_link_width",
    "max_link_width",
)
# Relevant class codes, the longest match wins; bridges and others are left out.
CLASSES = {
    "0104": "raid",
    "0106": "sata",
    "0107": "sas",
    "0108": "nvme",
    "01": "storage",
    "0200": "ethernet",
    "0207": "infiniband",
    "02": "network",
    "03": "display",
    "0c06": "infiniband",
    "12": "accelerator",
}
NO_WIDTH = (0, 255)  # no link or unknown: virtual functions, emulated devices


class Device(Facts):
    """One device. The current link speed is volatile: GPUs lower it when idle.

    `degraded` compares width and speed (for GPUs only the width) with what both the device and its port support.
    """

    slot: Annotated[str, key()]
    kind: Annotated[str, same()]
    vendor_id: Annotated[str | None, same()] = None
    device_id: Annotated[str | None, same()] = None
    driver: Annotated[str | None, same()] = None
    numa_node: Annotated[int | None, same()] = None
    link_gts: Annotated[float | None, gauge("GT/s")] = None
    max_link_gts: Annotated[float | None, same("GT/s")] = None
    link_width: Annotated[int | None, same("lanes")] = None
    max_link_width: Annotated[int | None, same("lanes")] = None
    port_link_gts: Annotated[float | None, same("GT/s")] = None
    port_link_width: Annotated[int | None, same("lanes")] = None
    degraded: Annotated[bool | None, same()] = None


def kind_of(class_code: str) -> str | None:
    """The name of a class code such as `0x010802`, or None if it is not relevant."""
    digits = class_code.removeprefix("0x")
    return CLASSES.get(digits[:4]) or CLASSES.get(digits[:2])


def speed_of(text: str) -> float | None:
    """16.0 for `16.0 GT/s PCIe` (older: `8 GT/s`), None for `Unknown`."""
    speed = re.match(r"([\d.]+) GT/s", text)
    return number(speed[1]) if speed else None


def width_of(text: str) -> int | None:
    """The number of lanes, or None if unknown."""
    lanes = integer(text)
    return None if lanes in NO_WIDTH else lanes


def below(now: float | None, device: float | None, port: float | None) -> bool:
    """Whether a link is slower than both its ends support; built-in devices have no port."""
    return now is not None and device is not None and now < min(device, port or device)


def parse(pages: Pages) -> list[Device]:
    """One value per file. The link of a device leads to a directory inside that of its port."""
    rows = []
    by_slot = dict(devices(pages, f"{ROOT}/"))
    for slot, found in by_slot.items():
        kind = optional(found.get("class"), kind_of)
        if not kind:
            continue
        row = Device(slot, kind, found.get("vendor"), found.get("device"))
        row.driver = optional(found.get("driver"), last_part)
        row.numa_node = natural(found.get("numa_node"))
        row.link_gts = optional(found.get("current_link_speed"), speed_of)
        row.max_link_gts = optional(found.get("max_link_speed"), speed_of)
        row.link_width = optional(found.get("current_link_width"), width_of)
        row.max_link_width = optional(found.get("max_link_width"), width_of)
        port = by_slot.get(found.get("", "").rpartition("/")[0].rpartition("/")[2], {})
        row.port_link_gts = optional(port.get("max_link_speed"), speed_of)
        row.port_link_width = optional(port.get("max_link_width"), width_of)
        if row.link_width and row.max_link_width:
            slower = kind != "display" and below(row.link_gts, row.max_link_gts, row.port_link_gts)
            row.degraded = slower or below(row.link_width, row.max_link_width, row.port_link_width)
        rows.append(row)
    return rows


SOURCE = Glob([f"{ROOT}/*/{name}" for name in NAMES], parse, links=[f"{ROOT}/*", f"{ROOT}/*/driver"], limit=4096 * KIB)
