"""/proc/self/mountstats: options, connections and bytes of NFS mounts (fs/nfs/super.c, net/sunrpc)."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import KIB, Facts, File, columns, counter, gauge, info, key, same
from rollbook.sources.mountinfo import options_of
from rollbook.sources.text import bounded, columns_of, integer, integers, lines_of, unescape

_EVENTS = (
    "inode_revalidate dentry_revalidate data_invalidate attr_invalidate vfs_open vfs_lookup vfs_access "
    "vfs_update_page vfs_read_page vfs_read_pages vfs_write_page vfs_write_pages vfs_getdents vfs_setattr vfs_flush "
    "vfs_fsync vfs_lock vfs_release congestion_wait setattr_truncate extend_write silly_rename short_read "
    "short_write delay pnfs_read pnfs_write"
)
EVENTS = tuple(_EVENTS.split())
# Positions of connects, sends, receives and bad xids in an `xprt:` line, after its first word.
TRANSPORTS = {"tcp": (2, 5, 6, 7), "rdma": (2, 5, 6, 7), "udp": (None, 2, 3, 4)}


class NfsMount(Facts):
    """One NFS mount. `connections` counts existing connections; `nconnect` is the mount option.

    Normal bytes use the page cache, direct bytes bypass it (O_DIRECT), server bytes are those on the network.
    """

    mount_point: Annotated[str, key()]
    export: Annotated[str, same()]
    version: Annotated[str | None, same()]
    transport: Annotated[str | None, same()]
    connections: Annotated[int, same()]
    nconnect: Annotated[int | None, same()]
    options: Annotated[list[str], same()]
    age_seconds: Annotated[int, gauge("s")]
    normal_read_bytes: Annotated[int, counter("bytes")]
    normal_written_bytes: Annotated[int, counter("bytes")]
    direct_read_bytes: Annotated[int, counter("bytes")]
    direct_written_bytes: Annotated[int, counter("bytes")]
    server_read_bytes: Annotated[int, counter("bytes")]
    server_written_bytes: Annotated[int, counter("bytes")]
    pages_read: Annotated[int, counter("pages")]
    pages_written: Annotated[int, counter("pages")]
    connects: Annotated[int | None, counter("events")] = None
    sends: Annotated[int | None, counter("requests")] = None
    receives: Annotated[int | None, counter("requests")] = None
    bad_xids: Annotated[int | None, counter("events")] = None
    events: Annotated[dict[str, int], columns(counter("events"))] = msgspec.field(default_factory=dict)
    volatile_options: Annotated[list[str], info()] = msgspec.field(default_factory=list)


def nfs_mounts(text: str) -> list[tuple[str, str, list[str]]]:
    """Mount point, export and statistics lines of each NFS mount; a later mount hides an earlier one."""
    seen: dict[str, tuple[str, list[str]]] = {}
    lines: list[str] = []
    for line in lines_of(text):
        mount = re.match(r"(?:device ([^ ]*)|no device) mounted on ([^ ]+) with fstype ([^ ]+)", line)
        if not mount:
            lines.append(line.strip())
            continue
        lines = []
        if mount[3] in ("nfs", "nfs4"):
            seen[unescape(mount[2])] = (unescape(mount[1] or ""), lines)
    return [(place, export, found) for place, (export, found) in seen.items()]


def parse(text: str) -> list[NfsMount]:
    """Blocks that start with `device … mounted on … with fstype nfs`; other file systems have only that line."""
    return [_mount(place, export, lines) for place, export, lines in nfs_mounts(text)]


def _mount(place: str, export: str, lines: list[str]) -> NfsMount:
    words = [line.partition(":") for line in lines]
    found = {name: value.strip() for name, _, value in words}
    option, volatile = options_of("nfs", found["opts"])
    value = dict(word.split("=", 1) for word in option if "=" in word)
    version = value.get("vers")
    if version and "minorversion" in value:  # a separate option before Linux 3.4
        version = f"{version}.{value['minorversion']}"
    xprts = [columns_of(rest, 1) for name, _, rest in words if name == "xprt"]
    row = NfsMount(
        place,
        export,
        version,
        "+".join(sorted({kind for kind, *_ in xprts})) or None,
        len(xprts),
        integer(value["nconnect"]) if "nconnect" in value else None,
        option,
        integer(found["age"]),
        *integers(columns_of(found["bytes"], 8)[:8]),
    )
    row.events = dict(zip(EVENTS, integers(found.get("events", "").split()), strict=False))
    row.volatile_options = volatile
    if xprts:
        row.connects, row.sends, row.receives, row.bad_xids = (_sum(xprts, field) for field in range(4))
    return row


def _sum(xprts: list[list[str]], field: int) -> int | None:
    total = 0
    for kind, *numbers in xprts:
        place = TRANSPORTS[kind][field] if kind in TRANSPORTS else None
        if place is None:
            return None
        if place >= len(numbers):
            raise ParseError(f"{len(numbers)} numbers for a {kind} connection")
        total += integer(numbers[place])
    return bounded(total)


SOURCE = File("/proc/self/mountstats", parse, every=10, limit=1024 * KIB)
