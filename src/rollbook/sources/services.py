"""/sys/fs/cgroup: services that affect a run, active or not (systemd.slice(5), cgroup-v2.rst).

systemd creates a cgroup for every service and removes it with the last process. Reading cgroups starts no program on
the host, unlike `systemctl`.
"""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Glob, Pages, columns, same
from rollbook.sources.text import fields_of

UNITS = (
    "irqbalance",
    "tuned",
    "chronyd",
    "chrony",
    "ntpd",
    "systemd-timesyncd",
    "slurmd",
    "kubelet",
    "nvidia-persistenced",
    "nvidia-fabricmanager",
)
UNIFIED, NAMED = "/sys/fs/cgroup/{}/cgroup.events", "/sys/fs/cgroup/systemd/{}/cgroup.procs"


class Services(Facts):
    """active or inactive per unit. A unit that failed or is not installed is inactive."""

    states: Annotated[dict[str, str], columns(same())]


def parse(pages: Pages) -> Services:
    """Version 2 has `populated 1` for a cgroup with processes at any depth; version 1 lists its own processes."""
    if not {UNIFIED.format("system.slice"), NAMED.format("system.slice")} & pages.keys():
        raise ParseError("no cgroups of systemd")
    running = {path.split("/")[-2] for path, text in pages.items() if _populated(path, text)}
    return Services({unit: "active" if unit + ".service" in running else "inactive" for unit in UNITS})


def _populated(path: str, text: str) -> bool:
    return fields_of(text, " ").get("populated") == "1" if path.endswith(".events") else bool(text.strip())


SOURCE = Glob(
    [pattern.format("system.slice") for pattern in (UNIFIED, NAMED)]
    + [pattern.format(f"*.slice/{unit}.service") for pattern in (UNIFIED, NAMED) for unit in UNITS],
    parse,
)
