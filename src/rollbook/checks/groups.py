"""Groups of like hosts: what is compared is compared within one group, never across.

By itself a group is formed of hosts with the same machine and processor model. Core counts and memory do not part
them: a host that lost some shall be found among its peers. A site that knows better names groups with `--group`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rollbook.errors import UsageError
from rollbook.hosts import expand
from rollbook.records.findings import HostGroup
from rollbook.records.hosts import HostResult
from rollbook.sources.cloud import Cloud
from rollbook.sources.cpuinfo import CpuInfo
from rollbook.sources.dmi import Machine

__all__ = ["Group", "form", "named_groups", "profile_of"]

UNKNOWN = "unknown hardware"


class Group:
    """Like hosts, with the records they gave."""

    def __init__(self, name: str, profile: str, hosts: Sequence[HostResult], *, chosen: bool) -> None:
        self.name, self.profile, self.hosts, self.chosen = name, profile, list(hosts), chosen

    def shown(self) -> HostGroup:
        """The group without its records."""
        return HostGroup(self.name, self.profile, [host.name for host in self.hosts])


def profile_of(host: HostResult) -> str:
    """The machine and its processor, as one line."""
    words = []
    if machine := host.fact(Machine):
        words += [machine.sys_vendor, machine.product_name or machine.device_tree_model]
    if cloud := host.fact(Cloud):
        words.append(cloud.instance_type if cloud.instance_type not in words else None)
    if cpu := host.fact(CpuInfo):
        words.append(cpu.model or cpu.architecture)
    return ", ".join(word for word in words if word) or UNKNOWN


def form(hosts: Sequence[HostResult], named: Mapping[str, Sequence[str]]) -> list[Group]:
    """The groups of the hosts that gave data; those in no named group are grouped by profile."""
    given = {name: group for group, names in named.items() for name in names}
    found: dict[tuple[bool, str], list[HostResult]] = {}
    for host in hosts:
        if host.gave_data:
            group = given.get(host.name)
            found.setdefault((group is not None, group or profile_of(host)), []).append(host)
    return [
        Group(name if chosen or len(found) > 1 else "all", name, members, chosen=chosen)
        for (chosen, name), members in found.items()
    ]


def named_groups(options: Sequence[str]) -> dict[str, list[str]]:
    """Groups as typed: `name=nodeset`, also in parts. A host is in one group at most."""
    found: dict[str, list[str]] = {}
    for option in options:
        name, equals, nodes = option.partition("=")
        if not equals or not name:
            raise UsageError(f"a group is written name=hosts, not {option!r}")
        members = expand(nodes)
        twice = [host for host in members if any(host in others for others in found.values())]
        if twice:
            raise UsageError(f"{twice[0]} is in two groups, or twice in one")
        found[name] = [*found.get(name, []), *members]
    return found
