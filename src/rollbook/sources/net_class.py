"""/sys/class/net: type, link state and settings of each network interface (ABI/testing/sysfs-class-net)."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from rollbook.sources.base import Facts, Glob, Pages, delta, key, same, same_set, unique
from rollbook.sources.text import devices, flag, integer, last_part, natural, optional, pci_slot

ROOT = "/sys/class/net"
LINK_TYPES = {"772": "loopback", "32": "infiniband"}  # ARPHRD_* of linux/if_arp.h
NAMES = (
    "type",
    "mtu",
    "operstate",
    "carrier",
    "speed",
    "duplex",
    "address",
    "carrier_changes",
    "tx_queue_len",
    "uevent",
    "bonding/mode",
    "bonding/slaves",
    "bridge/bridge_id",
    "device/numa_node",
)
# SPEED_UNKNOWN on older kernels and drivers that do not write -1.
NO_SPEED = (0, 65535, 4294967295)


class Interface(Facts):
    """One interface. Traffic of a bond, bridge or VLAN is also counted at its `lower` interfaces.

    `operstate` ("unknown" for drivers without link detection) and `carrier` tell whether the link is up; virtual
    interfaces often have no speed. `address` and `carrier_changes` are left out for virtual interfaces, which come and
    go with generated addresses.
    """

    interface_name: Annotated[str, key()]
    kind: Annotated[str, same()]
    type: Annotated[int | None, same()] = None
    driver: Annotated[str | None, same()] = None
    mtu: Annotated[int | None, same("bytes")] = None
    operstate: Annotated[str | None, same()] = None
    carrier: Annotated[bool | None, same()] = None
    speed_mbps: Annotated[int | None, same("Mb/s")] = None
    duplex: Annotated[str | None, same()] = None
    address: Annotated[str | None, unique()] = None
    carrier_changes: Annotated[int | None, delta()] = None
    pci_slot: Annotated[str | None, same()] = None
    numa_node: Annotated[int | None, same()] = None
    tx_queue_len: Annotated[int | None, same("packets")] = None
    master: Annotated[str | None, same()] = None
    lower: Annotated[list[str], same_set()] = msgspec.field(default_factory=list)
    bond_mode: Annotated[str | None, same()] = None
    bond_slaves: Annotated[list[str], same_set()] = msgspec.field(default_factory=list)


def kind_of(found: dict[str, str]) -> str:
    """bond, bridge, the driver's device type (vlan, vxlan, wlan…), loopback, infiniband, physical or virtual.

    Names are not used, because sites choose them. Physical means backed by a device, including those of VMs.
    """
    devtype = re.search(r"^DEVTYPE=(\w+)$", found.get("uevent", ""), re.MULTILINE)
    if "bonding/mode" in found:
        return "bond"
    if "bridge/bridge_id" in found:
        return "bridge"
    if devtype:
        return devtype[1]
    if found.get("type") in LINK_TYPES:
        return LINK_TYPES[found["type"]]
    if "" not in found:
        return "unknown"
    return "virtual" if "/virtual/" in found[""] else "physical"


def parse(pages: Pages) -> list[Interface]:
    """One value per file; reading `speed`, `duplex` and `carrier` fails while an interface is down."""
    rows = []
    for name, found in devices(pages, f"{ROOT}/"):
        kind, speed = kind_of(found), natural(found.get("speed"))
        row = Interface(name, kind, optional(found.get("type"), integer))
        row.driver = optional(found.get("device/driver"), last_part)
        row.mtu = optional(found.get("mtu"), integer)
        row.operstate = found.get("operstate") or None
        row.carrier = optional(found.get("carrier"), flag)
        row.speed_mbps = None if speed in NO_SPEED else speed
        row.duplex = found.get("duplex") or None
        # USB interfaces of a BMC have the same address in all servers of a model and appear and disappear.
        if (row.driver and "/usb" not in found.get("", "")) or kind == "bond":
            row.address = found.get("address") or None
            row.carrier_changes = optional(found.get("carrier_changes"), integer)
        row.pci_slot = optional(found.get(""), pci_slot)
        row.numa_node = natural(found.get("device/numa_node"))
        row.tx_queue_len = optional(found.get("tx_queue_len"), integer)
        row.master = optional(found.get("master"), last_part)
        row.lower = [path.removeprefix("lower_") for path in found if path.startswith("lower_")]
        row.bond_mode = found.get("bonding/mode", "").partition(" ")[0] or None
        row.bond_slaves = found.get("bonding/slaves", "").split()
        rows.append(row)
    return rows


SOURCE = Glob(
    [f"{ROOT}/*/{name}" for name in NAMES],
    parse,
    links=[f"{ROOT}/*", f"{ROOT}/*/device/driver", f"{ROOT}/*/master", f"{ROOT}/*/lower_*"],
)
