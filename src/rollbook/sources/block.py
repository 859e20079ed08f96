"""/sys/block: type, size, model and queue settings of each block device (ABI/stable/sysfs-block)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from rollbook.sources.base import KIB, Facts, Glob, Pages, band, info, key, same, same_set
from rollbook.sources.text import bounded, bus, choice, devices, flag, integer, last_part, natural, optional

DEVICES = "/sys/block/[!l]*"  # without loop devices, of which some distributions use dozens
SECTOR = 512  # the unit of `size`, independent of the device's block size


class Block(Facts):
    """One device. I/O of a device with `parents`, and of a partition, is also counted at the underlying device.

    `serial` and `wwid` are not compared: hosts that share a volume see the same values. Without `counts_io` the kernel
    counts no I/O of the device, and its counters stay 0.
    """

    device: Annotated[str, key()]
    kind: Annotated[str, same()]
    capacity_bytes: Annotated[int | None, band(0.01, "bytes")] = None
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
    counts_io: Annotated[bool | None, info()] = None
    parents: Annotated[list[str], same_set()] = msgspec.field(default_factory=list)
    partitions: Annotated[list[str], same_set()] = msgspec.field(default_factory=list)


def kind_of(name: str, found: dict[str, str]) -> str:
    """disk, path (of a multipath NVMe disk), optical, dm, md, ram, zd (ZFS volume), zram or virtual."""
    if "dm/name" in found:
        return "dm"
    if "md/level" in found:
        return "md"
    if found.get("hidden") == "1":
        return "path"
    if "/virtual/block/" in found.get("", ""):
        driver = name.rstrip("0123456789")
        return driver if driver in ("ram", "zd", "zram") else "virtual"
    return "optical" if found.get("device/type") == "5" else "disk"


def interface_of(found: dict[str, str]) -> str | None:
    """The bus. A SATA disk behind a SAS HBA has the vendor "ATA"."""
    name = bus(found.get("", ""))
    return "sata" if name == "sas" and found.get("device/vendor") == "ATA" else name


# Field: parser, and the files that may contain the value.
FILES: dict[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    "vendor": (lambda text: None if text.startswith("0x") else text, ("device/vendor",)),  # virtio: a number
    "model": (str, ("device/model",)),
    "firmware": (str, ("device/firmware_rev", "device/rev")),
    "serial": (str, ("device/serial", "serial")),
    "wwid": (str, ("wwid", "device/wwid")),
    "mapped_name": (str, ("dm/name",)),
    "removable": (flag, ("removable",)),
    "read_only": (flag, ("ro",)),
    "rotational": (flag, ("queue/rotational",)),
    "scheduler": (choice, ("queue/scheduler",)),
    "nr_requests": (integer, ("queue/nr_requests",)),
    "read_ahead_kb": (integer, ("queue/read_ahead_kb",)),
    "max_sectors_kb": (integer, ("queue/max_sectors_kb",)),
    "logical_block_size": (integer, ("queue/logical_block_size",)),
    "physical_block_size": (integer, ("queue/physical_block_size",)),
    "write_cache": (str, ("queue/write_cache",)),
    "wbt_lat_usec": (integer, ("queue/wbt_lat_usec",)),
    "counts_io": (flag, ("queue/iostats",)),
}


def parse(pages: Pages) -> list[Block]:
    """One value per file; `!` in a name means `/`. Unused virtual devices (without a size) are left out."""
    rows = []
    for name, found in devices(pages, "/sys/block/"):
        kind, sectors = kind_of(name, found), natural(found.get("size"))
        capacity = None if sectors is None else bounded(sectors * SECTOR)
        if capacity == 0 and kind not in ("disk", "path", "optical"):
            continue
        row = Block(name.replace("!", "/"), kind, capacity, interface_of(found))
        for field, (read, files) in FILES.items():
            setattr(row, field, optional(next((found[file] for file in files if found.get(file)), None), read))
        row.parents = [last_part(path).replace("!", "/") for path in found if path.startswith("slaves/")]
        row.partitions = [path.partition("/")[0].replace("!", "/") for path in found if path.endswith("/partition")]
        rows.append(row)
    return rows


SOURCE = Glob(
    [f"{DEVICES}/{file}" for _, files in FILES.values() for file in files]
    + [f"{DEVICES}/{file}" for file in ("size", "hidden", "md/level", "device/type", "*/partition")],
    parse,
    links=[DEVICES, f"{DEVICES}/slaves/*"],
    limit=4096 * KIB,
    seconds=5,
)
