"""/proc/self/mountinfo: mounted file systems and their effective options (proc_pid_mountinfo(5))."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import KIB, Facts, File, info, key, same
from rollbook.sources.text import lines_of, unescape

# Served by another machine or by the hypervisor.
_REMOTE = (
    "9p afs beegfs beegfs_nodev ceph cifs coda davfs fuse.blobfuse2 fuse.ceph fuse.ceph-fuse fuse.dfuse "
    "fuse.gcsfuse fuse.glusterfs fuse.goofys fuse.juicefs fuse.mount-s3 fuse.quobyte fuse.rclone fuse.s3fs "
    "fuse.sshfs gfs gfs2 gpfs lustre nfs nfs4 ocfs2 orangefs panfs pvfs2 smb3 smbfs virtiofs wekafs"
)
REMOTE = frozenset(_REMOTE.split())
# Differ between hosts or boots: addresses and ports of a connection, autofs pipes, subvolume numbers.
VOLATILE = frozenset({"addr", "clientaddr", "fd", "mountaddr", "mountport", "pgrp", "pipe_ino", "port", "subvolid"})
# By default the size of tmpfs is a fraction of the host's memory.
MEMORY_SIZED = frozenset({"nr_inodes", "size"})


class MountInfo(Facts):
    """The visible mount at a mount point. Options that differ between equal hosts are in `volatile_options`."""

    mount_point: Annotated[str, key()]
    fs_type: Annotated[str, same()]
    source: Annotated[str, same()]
    root: Annotated[str, same()]
    remote: Annotated[bool, same()]
    mount_options: Annotated[list[str], same()]
    super_options: Annotated[list[str], same()]
    device_number: Annotated[str, info()]
    volatile_options: Annotated[list[str], info()] = msgspec.field(default_factory=list)


def options_of(fs_type: str, text: str) -> tuple[list[str], list[str]]:
    """Sorted options of a file system: those that are the same on equal hosts, and the volatile ones."""
    own = VOLATILE | MEMORY_SIZED if fs_type in ("tmpfs", "devtmpfs") else VOLATILE
    words = sorted(set(text.split(",")))
    return [w for w in words if w.split("=")[0] not in own], [w for w in words if w.split("=")[0] in own]


def parse(text: str) -> list[MountInfo]:
    """`id parent device root place options [tags] - type source super-options`; a later mount hides an earlier one."""
    seen: dict[str, MountInfo] = {}
    for line in lines_of(text):
        left, dash, right = line.partition(" - ")
        if not dash:
            raise ParseError(f"no separator: {line[:80]!r}")
        _, _, device, root, place, options, *_ = left.split(" ")
        # An empty source leaves two adjacent blanks.
        kind, source, supers = right.split(" ", 2)
        shared, volatile = options_of(kind, supers)
        seen[place] = MountInfo(
            mount_point=unescape(place),
            fs_type=kind,
            source=unescape(source),
            root=unescape(root),
            remote=kind in REMOTE,
            mount_options=sorted(options.split(",")),
            super_options=shared,
            device_number=device,
            volatile_options=volatile,
        )
    return list(seen.values())


SOURCE = File("/proc/self/mountinfo", parse, limit=1024 * KIB)
