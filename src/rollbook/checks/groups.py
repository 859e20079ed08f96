"""Groups of hosts that are compared with each other.

By default hosts with the same machine and processor model form a group. Core counts and memory do not separate hosts,
so that a host which lost some is found among its peers. `--group` names groups explicitly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rollbook.errors import UsageError
from rollbook.hosts import expand
from rollbook.records.findings import GroupSummary
from rollbook.records.hosts import HostResult
from rollbook.sources.cloud import Cloud
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.sources.dmi import Machine
from rollbook.sources.identity import Identity

__all__ = ["Group", "distinct_machines", "form_groups", "named_groups"]

UNKNOWN = "unknown hardware"


class Group:
    """Hosts to compare with each other; `is_named` if `--group` named them."""

    def __init__(self, name: str, profile: str, hosts: Sequence[HostResult], *, is_named: bool) -> None:
        self.name, self.profile, self.hosts, self.is_named = name, profile, list(hosts), is_named

    def summary(self) -> GroupSummary:
        """The group with the names of its hosts only."""
        return GroupSummary(self.name, self.profile, [host.name for host in self.hosts])


def profile_of(host: HostResult) -> str:
    """Machine and processor model as one line."""
    words = []
    if machine := host.fact(Machine):
        words += [machine.sys_vendor, machine.product_name or machine.device_tree_model]
    if cloud := host.fact(Cloud):
        words.append(cloud.instance_type if cloud.instance_type not in words else None)
    if cpu := host.fact(CpuInfo):
        words.append(cpu.model or cpu.architecture)
    return ", ".join(word for word in words if word) or UNKNOWN


def distinct_machines(hosts: Iterable[HostResult]) -> list[HostResult]:
    """The hosts without further names of a machine that is already listed, so that none is compared with itself.

    Host names belong to one machine if kernel boot id, machine id and host name are equal. Containers on one machine
    share the boot id but have their own host names.
    """
    found: dict[object, HostResult] = {}
    for host in hosts:
        ids = host.fact(Identity)
        machine = (ids.boot_id, ids.machine_id, ids.hostname) if ids and ids.boot_id else host.name
        found.setdefault(machine, host)
    return list(found.values())


def form_groups(hosts: Sequence[HostResult], named: Mapping[str, Sequence[str]]) -> list[Group]:
    """The groups of the hosts that returned data, each machine once; hosts in no named group are grouped by profile."""
    given = {name: group for group, names in named.items() for name in names}
    found: dict[tuple[bool, str], list[HostResult]] = {}
    for host in distinct_machines(host for host in hosts if host.gave_data):
        group = given.get(host.name)
        found.setdefault((group is not None, group or profile_of(host)), []).append(host)
    return [
        Group(name if is_named or len(found) > 1 else "all", name, members, is_named=is_named)
        for (is_named, name), members in found.items()
    ]


def named_groups(options: Sequence[str]) -> dict[str, list[str]]:
    """Parse `NAME=NODESET` options; a group may have several. Raises `UsageError` for a host in two groups."""
    found: dict[str, list[str]] = {}
    for option in options:
        name, equals, nodes = option.partition("=")
        if not equals or not name:
            raise UsageError(f"a group is NAME=HOSTS, not {option!r}")
        members = expand(nodes)
        twice = [host for host in members if any(host in others for others in found.values())]
        if twice:
            raise UsageError(f"{twice[0]} is in two groups or twice in one")
        found[name] = [*found.get(name, []), *members]
    return found
