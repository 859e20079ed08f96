"""/sys/block: every block device, what it is made of and how its queue is set (ABI/stable/sysfs-block)."""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Glob, Pages, Record, band, info, key, same, same_set
from rollbook.sources.text import bounded, chosen, devices, flag, integer, last_part, when

ROOT = "/sys/block"
SECTOR = 512  # `size` counts these on every device, whatever its block size

# Where the device hangs, by its path. Disks behind an HBA's own RAID hang on a bare SCSI host.
INTERFACES = (
    (r"/nvme", "nvme"),
    (r"/virtio\d", "virtio"),
    (r"/usb\d", "usb"),
    (r"/session\d+/", "iscsi"),
    (r"/rport-", "fc"),
    (r"/end_device-", "sas"),
    (r"/ata\d+/", "sata"),
    (r"(?i)/vmbus", "vmbus"),
    (r"/vbd-", "xen"),
    (r"/mmc_host/", "mmc"),
    (r"/ndbus\d", "pmem"),
    (r"/rbd/", "rbd"),
    (r"/host\d+/", "scsi"),
)


class Block(Record):
    """One device. Data of a device with `parents`, and of a partition, is counted again at what lies under it.

    `serial` and `wwid` are not compared: hosts that share a volume see the same ones.
    """

    device: Annotated[str, key()]
    kind: Annotated[str, same()]
    capacity_bytes: Annotated[int, band(0.01, "bytes")]
    interface: Annotated[str | None, same()] = None
    vendor: Annotated[str | None, same()] = None
    model: Annotated[str | None, same()] = None
    firmware: Annotated[str | None, same()] = None
    serial: Annotated[str | None, info()] = None
    wwid: Annotated[str | None, info()] = None
    mapped_name: Annotated[str | None, same()] = None
    removable: Annotated[bool | None, same()] = None
    read_only: Annotated[bool | None, same()] = None
    rotational: Annotated[bool | None, same()] = None
    scheduler: Annotated[str | None, same()] = None
    nr_requests: Annotated[int | None, same()] = None
    read_ahead_kb: Annotated[int | None, same("KiB")] = None
    max_sectors_kb: Annotated[int | None, same("KiB")] = None
    logical_block_size: Annotated[int | None, same("bytes")] = None
    physical_block_size: Annotated[int | None, same("bytes")] = None
    write_cache: Annotated[str | None, same()] = None
    wbt_lat_usec: Annotated[int | None, same("µs")] = None
    parents: Annotated[list[str], same_set()] = []
    partitions: Annotated[list[str], same_set()] = []


def kind_of(name: str, found: dict[str, str]) -> str:
    """disk, path (one leg of a multipath NVMe disk), optical, dm, md, loop, ram, zram, or virtual."""
    if "dm/name" in found:
        return "dm"
    if "md/level" in found:
        return "md"
    if found.get("hidden") == "1":
        return "path"
    if "/virtual/block/" in found.get("", ""):
        driver = name.rstrip("0123456789")
        return driver if driver in ("loop", "ram", "zram") else "virtual"
    return "optical" if found.get("device/type") == "5" else "disk"


def interface_of(found: dict[str, str]) -> str | None:
    """The bus, from the path the device's link points to; a SATA disk behind a SAS HBA says "ATA" as its vendor."""
    bus = next((name for pattern, name in INTERFACES if re.search(pattern, found.get("", ""))), None)
    return "sata" if bus == "sas" and found.get("device/vendor") == "ATA" else bus


def parse(pages: Pages) -> list[Block]:
    """One value per file; a `!` in a name stands for `/`. Virtual devices without a size are unused and left out."""
    rows = []
    for name, found in devices(pages, f"{ROOT}/"):
        kind, capacity = kind_of(name, found), bounded(integer(found["size"]) * SECTOR)
        if capacity < 0:
            raise ParseError(f"{name}: negative size")
        if not capacity and kind not in ("disk", "path", "optical"):
            continue
        vendor = found.get("device/vendor", "")
        row = Block(name.replace("!", "/"), kind, capacity, interface_of(found))
        row.vendor = None if vendor.startswith("0x") else vendor or None  # virtio gives a number
        row.model = found.get("device/model") or None
        row.firmware = found.get("device/firmware_rev") or found.get("device/rev") or None
        row.serial = found.get("device/serial") or found.get("serial") or None
        row.wwid = found.get("wwid") or found.get("device/wwid") or None
        row.mapped_name = found.get("dm/name")
        row.removable = when(found.get("removable"), flag)
        row.read_only = when(found.get("ro"), flag)
        row.rotational = when(found.get("queue/rotational"), flag)
        row.scheduler = when(found.get("queue/scheduler"), chosen)
        row.write_cache = found.get("queue/write_cache") or None
        for setting in NUMBERS:
            setattr(row, setting, when(found.get(f"queue/{setting}"), integer))
        row.parents = [last_part(path).replace("!", "/") for path in found if path.startswith("slaves/")]
        row.partitions = [path.partition("/")[0] for path in found if path.endswith("/partition")]
        rows.append(row)
    return rows


NUMBERS = (
    "nr_requests",
    "read_ahead_kb",
    "max_sectors_kb",
    "logical_block_size",
    "physical_block_size",
    "wbt_lat_usec",
)
SOURCE = Glob(
    [
        *(f"{ROOT}/*/{name}" for name in ("size", "ro", "removable", "hidden", "serial", "wwid", "dm/name", "md/level")),
        *(f"{ROOT}/*/device/{name}" for name in ("vendor", "model", "rev", "firmware_rev", "serial", "wwid", "type")),
        *(f"{ROOT}/*/queue/{name}" for name in ("rotational", "scheduler", "write_cache", *NUMBERS)),
        f"{ROOT}/*/*/partition",
    ],
    parse,
    links=[f"{ROOT}/*", f"{ROOT}/*/slaves/*"],
)
