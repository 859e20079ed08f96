"""/sys/class/dmi/id: machine, board and firmware versions (ABI/testing/sysfs-class-dmi, SMBIOS 3)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.sources.base import Facts, Files, Pages, same, unique

ROOT = "/sys/class/dmi/id"

# Placeholders of vendors that left a string unset, in lower case. The UUID is AMI's sample value.
PLACEHOLDERS = frozenset(
    (
        "",
        "0123456789",
        "03000200-0400-0500-0006-000700080009",
        "123456789",
        "default string",
        "empty",
        "n/a",
        "none",
        "not applicable",
        "not available",
        "not defined",
        "not present",
        "not specified",
        "o.e.m.",
        "oem",
        "sku",
        "system manufacturer",
        "system product name",
        "system serial number",
        "system sku",
        "system version",
        "to be filled by o.e.m.",
        "undefined",
        "unknown",
    )
)
# SMBIOS 3, table 17; other types keep their number.
CHASSIS = {
    "1": "other",
    "3": "desktop",
    "7": "tower",
    "9": "portable",
    "10": "notebook",
    "17": "main server chassis",
    "23": "rack mount",
    "25": "multi-system",
    "28": "blade",
    "29": "blade enclosure",
    "30": "tablet",
    "31": "convertible",
    "35": "mini PC",
}


class Machine(Facts):
    """Vendor, model and firmware of the machine. Serial number and UUID are readable by root only."""

    sys_vendor: Annotated[str | None, same()] = None
    product_name: Annotated[str | None, same()] = None
    product_family: Annotated[str | None, same()] = None
    product_version: Annotated[str | None, same()] = None
    product_sku: Annotated[str | None, same()] = None
    board_vendor: Annotated[str | None, same()] = None
    board_name: Annotated[str | None, same()] = None
    board_version: Annotated[str | None, same()] = None
    bios_vendor: Annotated[str | None, same()] = None
    bios_version: Annotated[str | None, same()] = None
    bios_date: Annotated[str | None, same()] = None
    bios_release: Annotated[str | None, same()] = None
    chassis_vendor: Annotated[str | None, same()] = None
    chassis_type: Annotated[str | None, same()] = None
    product_serial: Annotated[str | None, unique()] = None
    product_uuid: Annotated[str | None, unique()] = None
    device_tree_model: Annotated[str | None, same()] = None


def without_placeholder(text: str) -> str | None:
    """The string, or None for a placeholder of an unset value."""
    text = text.strip("\0 \t\n")
    unset = text.lower() in PLACEHOLDERS or re.fullmatch(r"(?i)([0fx.*-])\1{2,}|[0f]{8}(-[0f]{4}){3}-[0f]{12}", text)
    return None if unset else text


def parse(pages: Pages) -> Machine:
    """One string per file; Arm boards without SMBIOS have the model in the device tree."""
    strings = {name: without_placeholder(text) for name, text in pages.items()}
    chassis = strings.pop("chassis_type", None)
    return Machine(chassis_type=CHASSIS.get(chassis, chassis) if chassis else None, **strings)


SOURCE = Files(
    {name: f"{ROOT}/{name}" for name in Machine.__struct_fields__ if name != "device_tree_model"}
    | {"device_tree_model": "/proc/device-tree/model"},
    parse,
)
