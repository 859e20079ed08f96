"""/sys/devices/system/cpu: online CPUs, sockets, cores, SMT and isolation (admin-guide/cputopology)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, Glob, Pages, same
from rollbook.sources.text import flag, last_part, members, natural, optional

ROOT = "/sys/devices/system/cpu"
LISTS = ("online", "offline", "possible", "present", "isolated", "nohz_full")


class Topology(Facts):
    """CPU lists in the kernel's format (`0-15,32-47`, empty for no CPU), their counts, sockets and cores.

    `sockets` and `cores` count online CPUs only. They do not depend on /proc/cpuinfo, so they exist on Arm too.
    """

    online: Annotated[str, same()]
    online_count: Annotated[int, same("CPUs")]
    offline: Annotated[str | None, same()] = None
    offline_count: Annotated[int | None, same("CPUs")] = None
    possible: Annotated[str | None, same()] = None
    present: Annotated[str | None, same()] = None
    isolated: Annotated[str | None, same()] = None
    nohz_full: Annotated[str | None, same()] = None
    sockets: Annotated[int | None, same("sockets")] = None
    cores: Annotated[int | None, same("cores")] = None
    smt_active: Annotated[bool | None, same()] = None
    smt_control: Annotated[str | None, same()] = None


def parse(pages: Pages) -> Topology:
    """Count cores as distinct sets of thread siblings, because core ids repeat between dies."""
    # Many kernels print "(null)" if nohz_full is not set.
    lists = {name: pages[f"{ROOT}/{name}"].strip().replace("(null)", "") for name in LISTS if f"{ROOT}/{name}" in pages}
    offline = lists.get("offline")
    packages = {natural(text) for path, text in pages.items() if last_part(path) == "physical_package_id"}
    siblings = {text.strip() for path, text in pages.items() if last_part(path) == "thread_siblings_list"}
    return Topology(
        online=lists["online"],
        online_count=len(members(lists["online"])),
        offline=offline,
        offline_count=None if offline is None else len(members(offline)),
        possible=lists.get("possible"),
        present=lists.get("present"),
        isolated=lists.get("isolated"),
        nohz_full=lists.get("nohz_full"),
        sockets=len(packages - {None}) or None,
        cores=len(siblings) or None,
        smt_active=optional(pages.get(f"{ROOT}/smt/active", "").strip(), flag),
        smt_control=pages.get(f"{ROOT}/smt/control", "").strip() or None,
    )


SOURCE = Glob(
    [
        *(f"{ROOT}/{name}" for name in (*LISTS, "smt/active", "smt/control")),
        f"{ROOT}/cpu[0-9]*/topology/physical_package_id",
        f"{ROOT}/cpu[0-9]*/topology/thread_siblings_list",
    ],
    parse,
)
