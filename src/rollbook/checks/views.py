"""Which rows of a source can be compared between hosts, and by what they are told apart.

Most sources are compared as they are. Names that the kernel or a container engine gives in the order of arrival
(`sda`, `dm-3`, `veth9f2c`) mean nothing on another host: such rows are left out, or matched by what they are.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rollbook.records.hosts import HostResult
from rollbook.sources import catalogue
from rollbook.sources.addresses import Addresses
from rollbook.sources.base import Compare, Source, band, compare_of
from rollbook.sources.block import Block
from rollbook.sources.mountinfo import MountInfo
from rollbook.sources.net_class import Interface
from rollbook.sources.space import Space

__all__ = ["View", "status_of", "views", "views_of"]

# Their files hold zero bytes, which the shell stand-in cannot carry: its tables are empty whatever the host has.
BINARY = ("dimms",)

COMPARED = ("same", "band", "set")
BUILT_IN = frozenset(catalogue.NAMES)
# Interfaces whose names are given by a person or by where the card sits.
NAMED_KINDS = frozenset({"bond", "infiniband", "physical", "vlan"})
# Where container engines and package managers mount things of their own.
OTHERS_MOUNTS = re.compile(r"/(run|snap|var/lib/(containerd|containers|docker|kubelet|snapd))/")
# The kernel computes these limits from the memory of the host (kernel/fork.c), so that equal hosts differ a little.
SCALED_LIMITS = {"nproc": band(0.02), "sigpending": band(0.02)}


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """The part of a source that hosts are compared by.

    Rows for which `keep` is false are left out. With `identity`, rows are matched by the values of those fields and
    not by their key. `tallies` are counts per CPU, of which only the values count, so that a host with fewer CPUs
    does not differ in all of them. `rows` gives single rows a comparison of their own.
    """

    name: str
    source: str
    keep: Callable[[Any, HostResult], bool] | None = None
    identity: tuple[str, ...] = ()
    omit: frozenset[str] = frozenset()
    tallies: bool = False
    rows: dict[str, Compare] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def declared(self) -> Source:
        """The source it is a part of."""
        return catalogue.source(self.source)

    @functools.cached_property
    def table(self) -> bool:
        """Whether it has rows."""
        return self.declared.is_table

    @functools.cached_property
    def fields(self) -> Mapping[str, Compare]:
        """Every field of the source."""
        return compare_of(self.declared.row_type)

    @functools.cached_property
    def keys(self) -> tuple[str, ...]:
        """The fields that name a row."""
        return tuple(name for name, how in self.fields.items() if how.mode == "key")

    @functools.cached_property
    def compared(self) -> dict[str, Compare]:
        """The fields whose values hosts of a group share."""
        left_out = {*self.omit, *self.identity}
        return {name: how for name, how in self.fields.items() if how.mode in COMPARED and name not in left_out}

    @functools.cached_property
    def unique(self) -> dict[str, Compare]:
        """The fields whose values no two hosts share."""
        return {name: how for name, how in self.fields.items() if how.mode == "unique"}

    @functools.cached_property
    def counted(self) -> dict[str, Compare]:
        """The fields that count errors, which must not rise in a run."""
        return {name: how for name, how in self.fields.items() if how.mode == "delta"}

    def fact(self, host: HostResult) -> Any:
        """The host's record or the rows of it that count; an empty table where the host has no such thing.

        None where there is no record; `status_of` says whether that is because there is nothing to record.
        """
        fact = host.facts.get(self.source)
        if not self.table:
            return fact
        if fact is None:
            return [] if status_of(host, self.source) == "absent" else None
        return fact if self.keep is None else [row for row in fact if self.keep(row, host)]


def status_of(host: HostResult, source: str) -> str:
    """`ok` with a whole fact, `absent` where the host has no such thing, `unknown` where it was not asked or told."""
    reading = host.readings.get(source)
    if source in host.facts:
        lost = source in BINARY and host.agent == "sh" and host.facts[source] == []
        cut = reading is not None and reading.status == "truncated"
        return "unknown" if lost or cut else "ok"
    if reading is None:
        return "unknown"
    # A program that ran and said no, such as one whose service is off, has given its answer.
    declined = reading.status == "failed" and catalogue.source(source).runs_program
    return "absent" if reading.status == "absent" or declined else "unknown"


def _named_interface(row: Interface, host: HostResult) -> bool:
    """Cards, bonds and VLANs; of the rest those that hold an address of the host."""
    if row.kind in NAMED_KINDS:
        return True
    held = host.facts.get("addresses")
    if row.kind == "loopback" or not isinstance(held, Addresses):
        return False
    return bool(set(held.by_interface.get(row.interface_name, [])) - set(held.private))


def _disk(row: Block, host: HostResult) -> bool:
    """Whole disks; what is built on them is set up by the site and shows in its mounts."""
    del host
    return row.kind == "disk" and not row.parents


def _shared(row: MountInfo, host: HostResult) -> bool:
    del host
    return row.remote and not OTHERS_MOUNTS.match(row.mount_point)


def _local(row: MountInfo, host: HostResult) -> bool:
    """File systems on disks, whole: a bind mount shows a part of one that is listed already."""
    del host
    whole = row.root == "/" or row.fs_type == "btrfs"
    return row.source.startswith("/dev/") and whole and not row.remote and not OTHERS_MOUNTS.match(row.mount_point)


def _stored(row: Space, host: HostResult) -> bool:
    """Sizes of the mounts that are compared; those in memory follow the size of the memory."""
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
    # The mount's options are compared with the shared mounts.
    View("nfs", "nfs", omit=frozenset({"options"})),
    View("limits", "limits", rows=SCALED_LIMITS),
    View("cpufreq", "cpufreq", tallies=True),
    View("microcode", "microcode", tallies=True),
)


@functools.cache
def views() -> tuple[View, ...]:
    """All views in the order of the sources; those of sources that only count or show things are left out."""
    special: dict[str, list[View]] = {}
    for view in SPECIAL:
        special.setdefault(view.source, []).append(view)

    def each() -> Iterator[View]:
        for name in catalogue.NAMES:
            yield from special.get(name, [_whole(name)])

    return tuple(view for view in each() if view.compared or view.unique or view.counted)


@functools.cache
def _all_rows() -> tuple[View, ...]:
    return tuple(_whole(name) for name in catalogue.NAMES)


def views_of(hosts: Iterable[HostResult], *, all_rows: bool = False) -> tuple[View, ...]:
    """All views, and those of other packages' sources that were read on these hosts; or every row of each."""
    names = set[str]().union(*(names for host in hosts for names in (host.facts, host.readings))) - BUILT_IN
    more = [_whole(name) for name in sorted(names) if catalogue.find(name)]
    return (*(_all_rows() if all_rows else views()), *more)


@functools.cache
def _whole(name: str) -> View:
    return View(name, name)
