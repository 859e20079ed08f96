"""/sys/fs/cgroup: effective memory, CPU and I/O limits of a job (cgroups(7))."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Glob, Pages, band, info, same
from rollbook.sources.text import columns_of, integer, levels, lines_of, members

OWN = "/proc/self/cgroup"
V2 = "memory.max memory.high memory.swap.max cpu.max cpuset.cpus.effective cpuset.mems.effective pids.max io.max"
V1 = "memory.limit_in_bytes cpu.cfs_quota_us cpu.cfs_period_us cpuset.effective_cpus cpuset.cpus cpuset.mems"
# Version 1 writes the largest number of whole pages in 63 bits for "no limit".
NO_LIMIT = 1 << 62


class CgroupLimits(Facts):
    """Limits on the agent's own cgroup, which is that of the job if the agent runs inside it.

    Limits that are not set are left out. `cpu_quota` is a number of CPUs, such as 2.5. `pids` has a tolerance because
    systemd derives it from the memory size, which differs slightly between equal hosts.
    """

    version: Annotated[Literal["v1", "v2", "hybrid"], same()]
    path: Annotated[str, info()]
    memory_bytes: Annotated[int | None, band(0.02, "bytes")] = None
    memory_high_bytes: Annotated[int | None, band(0.02, "bytes")] = None
    swap_bytes: Annotated[int | None, band(0.02, "bytes")] = None
    cpu_quota: Annotated[float | None, same("CPUs")] = None
    cpu_count: Annotated[int | None, same("CPUs")] = None
    cpus: Annotated[str | None, info()] = None
    memory_nodes: Annotated[str | None, info()] = None
    pids: Annotated[int | None, band(0.02, "tasks")] = None
    io_max: Annotated[list[str], info()] = msgspec.field(default_factory=list)


def parse(pages: Pages) -> CgroupLimits:
    """For limits, the lowest value between the own cgroup and the root; for CPU sets, that of the deepest cgroup."""
    version, path = _own(pages[OWN])
    # In version 2 cpuset.cpus is only the requested set; the effective file is always present too.
    cpusets = [
        *levels(pages, "cpuset.cpus.effective"),
        *levels(pages, "cpuset.effective_cpus"),
        *levels(pages, "cpuset.cpus"),
    ]
    nodes = [*levels(pages, "cpuset.mems.effective"), *levels(pages, "cpuset.mems")]
    cpus = next((text for text in cpusets if text), None)
    return CgroupLimits(
        version,
        path,
        memory_bytes=_lowest([*levels(pages, "memory.max"), *levels(pages, "memory.limit_in_bytes")]),
        memory_high_bytes=_lowest(levels(pages, "memory.high")),
        swap_bytes=_lowest(levels(pages, "memory.swap.max")),
        cpu_quota=_quota(pages),
        cpu_count=len(members(cpus)) if cpus else None,
        cpus=cpus,
        memory_nodes=next((text for text in nodes if text), None),
        pids=_lowest(levels(pages, "pids.max")),
        io_max=sorted({line for text in levels(pages, "io.max") for line in lines_of(text)}),
    )


def _own(text: str) -> tuple[Literal["v1", "v2", "hybrid"], str]:
    """`id:controllers:path` lines; id 0 without controllers is the unified hierarchy."""
    paths: dict[str, str] = {}
    for line in lines_of(text):
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    if not paths:
        raise ParseError("no cgroup")
    path = paths.get("memory") or paths.get("") or next(iter(paths.values()))
    if "" not in paths:
        return "v1", path
    return ("v2" if len(paths) == 1 else "hybrid"), path


def _lowest(texts: Iterable[str]) -> int | None:
    limits = [integer(text) for text in texts if text != "max"]
    return min((limit for limit in limits if 0 <= limit < NO_LIMIT), default=None)


def _quota(pages: Pages) -> float | None:
    pairs = [tuple(columns_of(text, 2)[:2]) for text in levels(pages, "cpu.max")]
    pairs += zip(levels(pages, "cpu.cfs_quota_us"), levels(pages, "cpu.cfs_period_us"), strict=True)
    shares = []
    for quota, period in pairs:
        if quota not in ("max", "-1"):
            if integer(period) <= 0:
                raise ParseError(f"CPU period is {period}")
            shares.append(integer(quota) / integer(period))
    return min(shares, default=None)


SOURCE = Glob([OWN, *(f"{{cgroup}}/{name}" for name in f"{V2} {V1}".split())], parse)
