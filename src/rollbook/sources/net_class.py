"""/sys/class/net: every network interface, what it is and how it is set (ABI/testing/sysfs-class-net)."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from rollbook.sources.base import Facts, Glob, Pages, delta, key, same, same_set, unique
from rollbook.sources.text import devices, flag, integer, last_part, natural, pci_slot, when

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
# SPEED_UNKNOWN where older kernels and drivers do not write it as -1.
NO_SPEED = (0, 65535, 4294967295)


class Interface(Facts):
    """One interface. Traffic of one that has `lower` interfaces (bond, bridge, VLAN) is counted again at those.

    No speed does not mean no link: virtual interfaces often have none. Whether it is up is in `operstate` (where
    "unknown" is what drivers without link detection say) and `carrier`. Virtual interfaces come and go, and their
    addresses are made up, some the same on every host: for them neither `address` nor `carrier_changes` is kept.
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
    """bond, bridge, what its driver calls it (vlan, vxlan, wlan…), loopback, infiniband, physical or virtual.

    Never by name: names are the site's to choose. Physical is what a device backs, be it a VM's.
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
        row = Interface(name, kind, when(found.get("type"), integer))
        row.driver = when(found.get("device/driver"), last_part)
        row.mtu = when(found.get("mtu"), integer)
        row.operstate = found.get("operstate") or None
        row.carrier = when(found.get("carrier"), flag)
        row.speed_mbps = None if speed in NO_SPEED else speed
        row.duplex = found.get("duplex") or None
        # A service processor's card on USB has the same address in all servers of a kind, and comes and goes with it.
        if (row.driver and "/usb" not in found.get("", "")) or kind == "bond":
            row.address = found.get("address") or None
            row.carrier_changes = when(found.get("carrier_changes"), integer)
        row.pci_slot = when(found.get(""), pci_slot)
        row.numa_node = natural(found.get("device/numa_node"))
        row.tx_queue_len = when(found.get("tx_queue_len"), integer)
        row.master = when(found.get("master"), last_part)
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
