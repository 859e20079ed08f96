"""/sys/fs/cgroup: whether the services that shape a run are running (systemd.slice(5), cgroup-v2.rst).

systemd gives every service a control group of its own and removes it with the last process. Reading there starts no
program on the host, and wakes none, as asking over the system's bus would.
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
    """active or inactive per unit. One that failed, or is not installed, has no process and is inactive."""

    states: Annotated[dict[str, str], columns(same())]


def parse(pages: Pages) -> Services:
    """The unified hierarchy says `populated 1` for processes here or below; the older one lists those right here."""
    if not {UNIFIED.format("system.slice"), NAMED.format("system.slice")} & pages.keys():
        raise ParseError("systemd's control groups are not to be seen")
    running = {path.split("/")[-2] for path, text in pages.items() if _populated(path, text)}
    return Services({unit: "active" if unit + ".service" in running else "inactive" for unit in UNITS})


def _populated(path: str, text: str) -> bool:
    return fields_of(text, " ").get("populated") == "1" if path.endswith(".events") else bool(text.strip())


SOURCE = Glob(
    [pattern.format("system.slice") for pattern in (UNIFIED, NAMED)]
    + [pattern.format(f"*.slice/{unit}.service") for pattern in (UNIFIED, NAMED) for unit in UNITS],
    parse,
)
