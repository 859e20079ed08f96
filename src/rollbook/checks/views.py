"""Which rows of a source are compared between hosts, and how rows are matched.

Most sources are compared row by row. Names that depend on the order of detection (`sda`, `dm-3`, `veth9f2c`) mean
nothing on another host: such rows are left out or matched by their kind.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rollbook.records.hosts import HostResult
from rollbook.sources import catalogue
from rollbook.sources.addresses import Addresses
from rollbook.sources.base import Compare, Source, band, compare_of
from rollbook.sources.block import Block
from rollbook.sources.mountinfo import MountInfo
from rollbook.sources.net_class import Interface
from rollbook.sources.space import Space

__all__ = ["COMPARED", "View", "status_of", "views", "views_of"]

# Files with zero bytes, which the shell stand-in cannot send: an empty table from it means unknown.
BINARY = ("dimms",)

COMPARED = ("same", "band", "set")
BUILT_IN = frozenset(catalogue.NAMES)
# Interfaces whose names come from an administrator or from the slot of the card.
NAMED_KINDS = frozenset({"bond", "infiniband", "physical", "vlan"})
# Mounts of container engines and package managers.
ENGINE_MOUNTS = re.compile(r"/(run|snap|var/lib/(containerd|containers|docker|kubelet|snapd))/")
# The kernel derives these limits from the memory size (kernel/fork.c), so equal hosts differ slightly.
SCALED_LIMITS = {"memlock": band(0.02), "nproc": band(0.02), "sigpending": band(0.02)}


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """The part of a source by which hosts are compared.

    Rows for which `keep` is false are left out. With `identity`, rows are matched by these fields instead of their key.
    With `tallies`, fields count CPUs per value and only the values are compared, so that a host with fewer CPUs does
    not differ in all of them. `rows` overrides the comparison of single rows.
    """

    name: str
    source: str
    keep: Callable[[Any, HostResult], bool] | None = None
    identity: tuple[str, ...] = ()
    omit: frozenset[str] = frozenset()
    tallies: bool = False
    rows: dict[str, Compare] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def definition(self) -> Source:
        """The source that this is a part of."""
        return catalogue.source(self.source)

    @functools.cached_property
    def is_table(self) -> bool:
        """Whether the source gives rows."""
        return self.definition.is_table

    @functools.cached_property
    def fields(self) -> Mapping[str, Compare]:
        """Every field of the source."""
        return compare_of(self.definition.row_type)

    @functools.cached_property
    def compared(self) -> dict[str, Compare]:
        """The fields that are equal on all hosts of a group."""
        left_out = {*self.omit, *self.identity}
        return {name: how for name, how in self.fields.items() if how.mode in COMPARED and name not in left_out}

    @functools.cached_property
    def unique(self) -> dict[str, Compare]:
        """The fields that differ on every host."""
        return {name: how for name, how in self.fields.items() if how.mode == "unique"}

    @functools.cached_property
    def error_counters(self) -> dict[str, Compare]:
        """The fields that must not rise during a run."""
        return {name: how for name, how in self.fields.items() if how.mode == "delta"}

    def fact(self, host: HostResult) -> Any:
        """The host's facts, of a table only the compared rows; an empty list if the host has no such device.

        None if there are no facts; `status_of` tells whether they are absent or were not read.
        """
        fact = host.facts.get(self.source)
        if not self.is_table:
            return fact
        if fact is None:
            return [] if status_of(host, self.source) == "absent" else None
        return fact if self.keep is None else [row for row in fact if self.keep(row, host)]


def status_of(host: HostResult, source: str) -> str:
    """`ok` with complete facts, `absent` if the host has no such device or setting, `unknown` if it was not read."""
    reading = host.readings.get(source)
    if source in host.facts:
        lost = source in BINARY and host.agent == "sh" and host.facts[source] == []
        cut = reading is not None and reading.status == "truncated"
        return "unknown" if lost or cut else "ok"
    if reading is None:
        return "unknown"
    # A program that ran and reported an error, for example because its service is off, has given its answer.
    return "absent" if reading.status == "absent" or reading.declined else "unknown"


def _named_interface(row: Interface, host: HostResult) -> bool:
    """Cards, bonds and VLANs, and other interfaces with an address of the host."""
    if row.kind in NAMED_KINDS:
        return True
    held = host.facts.get("addresses")
    if row.kind == "loopback" or not isinstance(held, Addresses):
        return False
    return bool(set(held.by_interface.get(row.interface_name, [])) - set(held.private))


def _disk(row: Block, host: HostResult) -> bool:
    """Whole disks only; devices built on them are compared by their mounts."""
    del host
    return row.kind == "disk" and not row.parents


def _shared(row: MountInfo, host: HostResult) -> bool:
    del host
    return row.remote and not ENGINE_MOUNTS.match(row.mount_point)


def _local(row: MountInfo, host: HostResult) -> bool:
    """File systems on disks, without bind mounts, which show a part of a listed file system."""
    del host
    is_bind = row.root != "/" and row.fs_type != "btrfs"
    return (
        row.source.startswith("/dev/") and not is_bind and not row.remote and not ENGINE_MOUNTS.match(row.mount_point)
    )


def _stored(row: Space, host: HostResult) -> bool:
    """File systems of the compared mounts; the size of tmpfs depends on the memory."""
    mounts = host.facts.get("mountinfo") or []
    return any(m.mount_point == row.mount_point and (_shared(m, host) or _local(m, host)) for m in mounts)


SPECIAL = (
    View("net_class", "net_class", keep=_named_interface),
    View(
        "block",
        "block",
        keep=_disk,
        identity=("interface", "vendor", "model"),
        omit=frozenset({"kind", "mapped_name", "parents", "partitions", "removable"}),
    ),
    View("nvme", "nvme", identity=("transport", "model")),
    View("mdstat", "mdstat", identity=("level", "wanted"), omit=frozenset({"members", "failed", "spares"})),
    View("swaps", "swaps", identity=("kind", "size_kib")),
    View("shared_mounts", "mountinfo", keep=_shared, omit=frozenset({"remote"})),
    View("local_mounts", "mountinfo", keep=_local, omit=frozenset({"remote", "source", "root"})),
    View("space", "space", keep=_stored),
    # Mount options are compared in shared_mounts.
    View("nfs", "nfs", omit=frozenset({"options"})),
    View("limits", "limits", rows=SCALED_LIMITS),
    View("cpufreq", "cpufreq", tallies=True),
    View("microcode", "microcode", tallies=True),
)


@functools.cache
def views() -> tuple[View, ...]:
    """All views in the order of the sources, without sources that have nothing to compare."""
    special: dict[str, list[View]] = {}
    for view in SPECIAL:
        special.setdefault(view.source, []).append(view)
    found = (view for name in catalogue.NAMES for view in special.get(name, [_full_view(name)]))
    return tuple(view for view in found if view.compared or view.unique or view.error_counters)


@functools.cache
def _all_rows() -> tuple[View, ...]:
    return tuple(_full_view(name) for name in catalogue.NAMES)


def views_of(hosts: Iterable[HostResult], *, all_rows: bool = False) -> tuple[View, ...]:
    """All views, and those of plug-in sources that were read on these hosts; with `all_rows`, of complete sources."""
    names = set[str]().union(*(names for host in hosts for names in (host.facts, host.readings))) - BUILT_IN
    more = [_full_view(name) for name in sorted(names) if catalogue.find(name)]
    return (*(_all_rows() if all_rows else views()), *more)


@functools.cache
def _full_view(name: str) -> View:
    return View(name, name)
