"""Which devices count in a host's totals: each byte once, at the lowest device that moves it.

Of an NVMe drive with several paths the paths count: older kernels count nothing for the drive, newer ones a request
that failed over twice. Partitions are parts of their disks, dm and md devices use other devices, bonds, bridges and
VLANs use their members; loop, ram and zram devices and ZFS volumes move no data of their own. Disks whose I/O the
kernel was told not to count are left out: their counters stay 0, which is not their rate. The counters of an NFS
mount are those of its file system, which may be mounted at many places. The host's facts (`block`, `net_class`,
`mountinfo`) say what a device is; for a device that is not in them, such as one plugged in during the run, its name
decides. A mount that is not in them counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rollbook.records.hosts import HostResult
from rollbook.sources.block import Block
from rollbook.sources.mountinfo import MountInfo
from rollbook.sources.net_class import Interface

__all__ = ["COUNTED", "MOUNTED", "counted_disks", "counted_interfaces", "lowest_disks", "same_mounts"]

MOUNTED = ("nfs", "nfs_ops")
"""Tables whose rows may belong to one file system that is mounted at several places and counts once."""
DISK_KINDS = ("disk", "path", "virtual")
NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
NOT_A_DISK = re.compile(r"(loop|ram|zram|zd|dm-|md|sr|fd|nbd)\d")
NOT_A_LINK = re.compile(
    r"lo$|(bond|br|docker|veth|vlan|vxlan|tun|tap|dummy|virbr|cni|flannel|cali|team|ifb|genev|wg\d)"
)
VIRTUAL_LINKS = (
    *("loopback", "bond", "bridge", "vlan", "vxlan", "virtual", "dummy", "macvlan", "ipvlan", "team", "tun"),
    *("geneve", "wireguard", "bareudp", "gtp", "ppp"),
)


def counted_disks(names: Iterable[str], results: Sequence[HostResult]) -> list[str]:
    """The devices in a host's diskstats that count; `results` have the facts of the host."""
    blocks = [block for result in results for block in result.rows(Block)]
    counting = {block.device for block in blocks if block.counts_io}
    uncounted = {block.device for block in blocks if block.counts_io is False} - counting
    return [name for name in lowest_disks(names, results) if name not in uncounted]


def lowest_disks(names: Iterable[str], results: Sequence[HostResult]) -> list[str]:
    """The devices that do not use others."""
    known: dict[str, bool] = {}
    for result in results:
        for block in result.rows(Block):
            known[block.device] = block.kind in DISK_KINDS and not block.parents
            known.update(dict.fromkeys(block.partitions, False))
    names = list(names)
    together = set(names)
    drives = {f"{path[1]}{path[2]}" for path in map(NVME_PATH.fullmatch, names) if path}
    return [
        name
        for name in names
        if name not in drives and (known[name] if name in known else _like_a_disk(name, together))
    ]


def _like_a_disk(name: str, names: set[str]) -> bool:
    part = re.fullmatch(r"(.*?\d)p\d+|(.*?\D)\d+", name)
    return not NOT_A_DISK.match(name) and not (part and (part[1] or part[2]) in names)


def counted_interfaces(names: Iterable[str], results: Sequence[HostResult]) -> list[str]:
    """The interfaces of a host that count. In a container all are virtual: then those without members count."""
    links: dict[str, Interface] = {}
    for result in results:
        links.update({link.interface_name: link for link in result.rows(Interface)})
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


COUNTED = {"diskstats": counted_disks, "net_dev": counted_interfaces}
"""By table: chooses the devices that count in a host's totals; the others are not in the view of devices."""


def same_mounts(names: Iterable[str], results: Sequence[HostResult]) -> dict[str, str]:
    """For each mount the first mount of the same file system.

    Device numbers identify a file system within one result only: after an unmount another one may get the number.
    """
    names = list(names)
    found: dict[str, str] = {}
    for result in results:
        devices = {mount.mount_point: mount.device_number for mount in result.rows(MountInfo)}
        firsts: dict[str, str] = {}
        mounted = [name for name in names if name in devices]
        for name in sorted(
            mounted, key=lambda name: name not in found
        ):  # a mount that represents others keeps doing so
            found[name] = firsts.setdefault(devices[name], found.get(name, name))
    return {name: found.get(name, name) for name in names}
