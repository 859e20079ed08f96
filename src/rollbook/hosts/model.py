"""A host to be reached, and how two mentions of the same host are merged."""

from __future__ import annotations

import msgspec

from rollbook.errors import UsageError

__all__ = ["Host", "Hosts", "add_hosts"]


class Host(msgspec.Struct, frozen=True):
    """One host: its name without user and slots, and whether it is this machine.

    `user` and `slots` are None if they were not given.
    """

    name: str
    user: str | None = None
    slots: int | None = None
    local: bool = False


Hosts = dict[str, Host]
"""Hosts by name, in the order given."""


def add_hosts(hosts: Hosts, more: Hosts) -> None:
    """Merge `more` into `hosts`; a host named again keeps its position.

    Slots that were given add up, as MPICH does for repeated lines; a mention without slots adds none. Two
    different users for one host are an error: one connection serves each host.
    """
    for name, host in more.items():
        before = hosts.get(name)
        hosts[name] = _merged(before, host) if before else host


def _merged(one: Host, two: Host) -> Host:
    if one.user and two.user and one.user != two.user:
        raise UsageError(f"{one.name} is given with user {one.user} and with user {two.user}")
    given = [host.slots for host in (one, two) if host.slots is not None]
    return Host(one.name, one.user or two.user, sum(given) if given else None)
