"""Which devices count in the totals of a host: each byte once."""

from __future__ import annotations

from rollbook.metrics.totals import counted_disks, counted_interfaces, same_mounts
from rollbook.records.hosts import HostResult
from rollbook.sources.block import Block
from rollbook.sources.mountinfo import MountInfo
from rollbook.sources.net_class import Interface


def host_with(*facts: Block | Interface) -> list[HostResult]:
    """A host with these facts."""
    name = "block" if isinstance(facts[0], Block) else "net_class"
    return [HostResult(name="a", status="complete", facts={name: list(facts)})]


def test_counted_disks() -> None:
    """Only the lowest devices count, by the host's facts or, without facts, by name."""
    names = [
        "sda",
        "sda1",
        "nvme0n1",
        "nvme0n1p2",
        "dm-0",
        "md127",
        "loop3",
        "ram0",
        "zram1",
        "sr0",
        "vdb",
        "mmcblk0p1",
        "zd0",
        "nvme1n1",
        "nvme1n1p1",
        "nvme1c0n1",
        "nvme1c1n1",
    ]
    assert counted_disks(names, []) == ["sda", "nvme0n1", "vdb", "mmcblk0p1", "nvme1c0n1", "nvme1c1n1"]
    facts = host_with(
        Block("sda", "disk", partitions=["sda1"]),
        Block("nvme0n1", "disk", partitions=["nvme0n1p2"]),
        Block("dm-0", "dm", parents=["sda1"]),
        Block("md127", "md", parents=["nvme0n1p2"]),
        Block("vdb", "virtual"),
        Block("sdc", "disk", counts_io=False),
        Block("nvme1n1", "disk", partitions=["nvme1n1p1"]),
        Block("nvme1c0n1", "path"),
        Block("nvme1c1n1", "path"),
        Block("zd0", "zd"),
    )
    expected = ["sda", "nvme0n1", "vdb", "mmcblk0p1", "nvme1c0n1", "nvme1c1n1", "sdz"]
    assert counted_disks([*names, "sdc", "sdz"], facts) == expected


def test_disks_that_count_io_for_a_part_of_the_run() -> None:
    """A disk has rates if it counted at start or end; one that counted at neither has none."""
    facts = [
        *host_with(Block("sda", "disk", counts_io=True), Block("sdb", "disk", counts_io=False)),
        *host_with(Block("sda", "disk", counts_io=False), Block("sdb", "disk", counts_io=False)),
    ]
    assert counted_disks(["sda", "sdb"], facts) == ["sda"]


def test_counted_interfaces() -> None:
    """Members count, not their bond or loopback; in a container, where all are virtual, those without members."""
    facts = host_with(
        Interface("eth0", "physical", master="bond0"),
        Interface("eth1", "physical", master="bond0"),
        Interface("bond0", "bond", lower=["eth0", "eth1"]),
        Interface("bond0.7", "vlan", lower=["bond0"]),
        Interface("lo", "loopback"),
        Interface("veth9", "virtual"),
        Interface("genev_sys_6081", "geneve"),
        Interface("wg0", "wireguard"),
    )
    names = ["bond0", "bond0.7", "eth0", "eth1", "lo", "veth9", "ib0", "genev_sys_6081", "wg0"]
    assert counted_interfaces(names, facts) == ["eth0", "eth1", "ib0"]
    assert counted_interfaces(names, []) == ["eth0", "eth1", "ib0"]
    inside = host_with(
        Interface("eth0", "virtual"), Interface("lo", "loopback"), Interface("br0", "bridge", lower=["eth0"])
    )
    assert counted_interfaces(["br0", "eth0", "lo"], inside) == ["eth0"]


def mounted(**devices: str) -> HostResult:
    """A host with NFS mounts of these device numbers."""
    mounts = [MountInfo(f"/{name}", "nfs4", f"srv:/{name}", "/", True, [], [], at) for name, at in devices.items()]
    return HostResult(name="a", status="complete", facts={"mountinfo": mounts})


def test_same_mounts() -> None:
    """Mounts of one file system count as one, mounts without facts each count; device numbers may be reused."""
    names = ["/a", "/b", "/c", "/d"]
    assert list(same_mounts(names, []).values()) == names
    assert list(same_mounts(names, [mounted(a="0:50", b="0:51", c="0:50")]).values()) == ["/a", "/b", "/a", "/d"]
    assert list(same_mounts(["/b", "/c"], [mounted(a="0:50", b="0:51", c="0:50")]).values()) == ["/b", "/c"]
    assert list(same_mounts(names, [mounted(a="0:50"), mounted(b="0:50")]).values()) == names
    joined = [mounted(a="0:50", c="0:50"), mounted(b="0:50", c="0:50")]
    assert same_mounts(names, joined) == {"/a": "/a", "/b": "/a", "/c": "/a", "/d": "/d"}
