"""Which devices count in a host's totals: each byte once, at the lowest device that moves it.

Partitions are parts of their disks, dm and md devices lie on others, bonds, bridges and VLANs on their legs; loop, ram
and zram devices move no data of their own. The counters of an NFS mount are those of its file system, which may be
mounted at many places. What a device is comes from the host's facts (`block`, `net_class`, `mountinfo`), and where
these have not got it, plugged in during the run perhaps, from its name; a mount they have not got counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rollbook.records.hosts import HostResult
from rollbook.sources.block import Block
from rollbook.sources.mountinfo import MountInfo
from rollbook.sources.net_class import Interface

__all__ = ["counted_disks", "counted_interfaces", "counted_mounts", "same_mounts"]

DISK_KINDS = ("disk", "virtual")
NOT_A_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d")
NOT_A_LINK = re.compile(r"lo$|(bond|br|docker|veth|vlan|vxlan|tun|tap|dummy|virbr|cni|flannel|cali|team|ifb)")
VIRTUAL_LINKS = ("loopback", "bond", "bridge", "vlan", "vxlan", "virtual", "dummy", "macvlan", "ipvlan", "team", "tun")


def counted_disks(names: Iterable[str], records: Sequence[HostResult]) -> list[str]:
    """Of the devices in a host's diskstats those that count; `records` are what is known of the host."""
    known: dict[str, bool] = {}
    for record in records:
        for block in record.rows(Block):
            known[block.device] = block.kind in DISK_KINDS and not block.parents
            known.update(dict.fromkeys(block.partitions, False))
    names = list(names)
    return [name for name in names if known.get(name, _like_a_disk(name, set(names)))]


def _like_a_disk(name: str, names: set[str]) -> bool:
    part = re.fullmatch(r"(.*?\d)p\d+|(.*?\D)\d+", name)
    return not NOT_A_DISK.match(name) and not (part and (part[1] or part[2]) in names)


def counted_interfaces(names: Iterable[str], records: Sequence[HostResult]) -> list[str]:
    """Of the interfaces of a host those that count. Inside a container all are virtual: then those without legs do."""
    links: dict[str, Interface] = {}
    for record in records:
        links.update({link.interface_name: link for link in record.rows(Interface)})
    names = list(names)
    real = [name for name in names if _like_a_link(name, links.get(name))]
    return real or [
        name
        for name in names
        if name != "lo" and (name not in links or (links[name].kind != "loopback" and not links[name].lower))
    ]


def _like_a_link(name: str, link: Interface | None) -> bool:
    if link is None:
        return not NOT_A_LINK.match(name) and "." not in name
    return link.kind not in VIRTUAL_LINKS and not link.lower


def counted_mounts(names: Iterable[str], records: Sequence[HostResult]) -> list[str]:
    """Of the mounts that a host has at one time those that count: one of each file system."""
    return list(dict.fromkeys(same_mounts(names, records).values()))


def same_mounts(names: Iterable[str], records: Sequence[HostResult]) -> dict[str, str]:
    """By mount the first of those that are the same file system.

    A device number says so within one record only: after an unmount another file system may get it.
    """
    names = list(names)
    found: dict[str, str] = {}
    for record in records:
        devices = {mount.mount_point: mount.device_number for mount in record.rows(MountInfo)}
        firsts: dict[str, str] = {}
        mounted = [name for name in names if name in devices]
        for name in sorted(mounted, key=lambda name: name not in found):  # what stood for another still does
            found[name] = firsts.setdefault(devices[name], found.get(name, name))
    return {name: found.get(name, name) for name in names}
