"""Which host an agent claims to be on, and whether the network contradicts it.

All agents of a launch share one token, so that one host could claim to be another. No launcher carries a secret for one
host alone: srun, Open MPI and Hydra send the same environment to their daemons on every host. What remains is what the
launcher and the network attest: each rank exists once, launchers label the output of each rank, and connections come
from addresses that belong to hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import queue
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from rollbook.hosts import Host
from rollbook.hosts.local import read_machine

__all__ = ["AddressBook", "Claim", "match_host"]

RESOLVERS = 8  # threads


class Claim(NamedTuple):
    """Which host an agent claims to be on: its rank, the launcher's name for its node, its own host name.

    `address` is the peer address of its connection. `instance` is the same for all connections and lines of one agent
    and different for every other agent. `attested` is the rank that the launcher put before its lines. Unknown values
    are empty.
    """

    rank: int | None
    node: str
    hostname: str
    address: str = ""
    instance: str = ""
    attested: int | None = None


def match_host(claim: Claim, hosts: Sequence[Host], free: Collection[str]) -> Host | None:
    """The host that an agent claims, of those that are free.

    It is found by the launcher's name for the node, the host's own name, the address, or the position of the rank.
    """
    candidates = [host for host in hosts if host.name in free]
    short = claim.hostname.partition(".")[0]
    for name in (claim.node, claim.hostname, claim.address):
        for host in candidates:
            if name and name.lower() == host.name.lower():
                return host
    for host in candidates:
        if short and not claim.node and host.name.partition(".")[0].lower() == short.lower():
            return host
    if claim.rank is not None and not claim.node and claim.rank < len(hosts) and hosts[claim.rank].name in free:
        return hosts[claim.rank]
    return None


class AddressBook:
    """The addresses of hosts, as this machine resolves their names; `resolved` is called with those of each host.

    A resolver can hang, so daemon threads look names up: neither agents nor the end of the program wait for them.
    """

    def __init__(self, hosts: Sequence[Host], resolved: Callable[[str, frozenset[str]], None]) -> None:
        self._hosts, self._resolved = list(hosts), resolved
        self._known: set[str] = set()
        self._owners: dict[str, list[str]] = {}

    def resolve(self) -> None:
        """Start to look up all names."""
        loop, names = asyncio.get_running_loop(), queue.SimpleQueue[Host]()
        for host in self._hosts:
            names.put(host)

        def work() -> None:
            with contextlib.suppress(queue.Empty, RuntimeError):  # nothing left to do, or the loop is closed
                while True:
                    host = names.get_nowait()
                    loop.call_soon_threadsafe(self.add, host.name, _addresses_of(host))

        for _ in range(min(RESOLVERS, len(self._hosts))):
            threading.Thread(target=work, name="rollbook-resolver", daemon=True).start()

    def add(self, host: str, addresses: frozenset[str]) -> None:
        """Record the addresses of a host."""
        if addresses:
            self._known.add(host)
            for address in addresses:
                self._owners.setdefault(address, []).append(host)
            self._resolved(host, addresses)

    def owners(self, address: str) -> list[str]:
        """The hosts that have this address."""
        return self._owners.get(address, [])

    def contradicting(self, host: str, address: str) -> str | None:
        """Another host that has the address from which an agent claims to be on `host`, which has others; or None.

        An address that no host is known by proves nothing: most hosts have several networks.
        """
        owners = self.owners(address)
        return owners[0] if owners and host in self._known and host not in owners else None


def _addresses_of(host: Host) -> frozenset[str]:
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host.name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        found = set()
    addresses = {str(ipaddress.ip_address(address.partition("%")[0])) for address in found}
    return frozenset(addresses | read_machine().addresses if host.local else addresses)
