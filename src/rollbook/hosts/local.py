"""Which hosts are this machine.

Only local information is used: the host name, /etc/hosts, the search domain, the addresses. No name is looked up: a
resolver can hang, and a host that is not recognised as local is reached like any other.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from rollbook.hosts.model import Host

__all__ = ["is_local", "mark_local", "read_machine"]

# The leaf, then its types in the trie (Documentation/networking/fib_trie); every address of ours is a /32 LOCAL.
_FIB_LEAF = re.compile(r"\|-- ([0-9.]+)\n((?:\s+/\d+ .*\n?)+)")


class Machine(NamedTuple):
    """The names and addresses of one machine, in lower case and canonical form."""

    names: frozenset[str]
    addresses: frozenset[str]

    def is_called(self, name: str) -> bool:
        """Whether `name` is this machine: a name, a loopback address, or an address of its own."""
        name = name.lower().removesuffix(".")
        # Most names of a large list are neither a local name nor an address, and an exception for each is slow.
        if name in self.names or not (name[:1].isdecimal() or ":" in name):
            return name in self.names
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        return address.is_loopback or str(address) in self.addresses


def is_local(name: str) -> bool:
    """Whether `name`, without user and slots, is this machine."""
    return read_machine().is_called(name)


def mark_local(hosts: Iterable[Host]) -> list[Host]:
    """The same hosts, each marked whether it is this machine."""
    machine = read_machine()
    return [msgspec.structs.replace(host, local=machine.is_called(host.name)) for host in hosts]


def read_machine(root: Path = Path("/"), hostname: str | None = None) -> Machine:
    """The names and addresses of the machine whose file system is below `root`."""
    addresses = frozenset([*_ipv4(_read(root / "proc/net/fib_trie")), *_ipv6(_read(root / "proc/net/if_inet6"))])
    own = (socket.gethostname() if hostname is None else hostname).lower()
    names = {"localhost", own, own.partition(".")[0]}
    # resolv.conf(5): `own` alone is looked up in the first domain first, so this is its full name.
    domain = _search_domain(_read(root / "etc/resolv.conf"))
    if own and domain and "." not in own:
        names.add(f"{own}.{domain}")
    by_address = Machine(frozenset(), addresses)
    for line in _read(root / "etc/hosts").splitlines():
        address, *aliases = line.partition("#")[0].split() or [""]
        if by_address.is_called(address):
            names.update(alias.lower().removesuffix(".") for alias in aliases)
    return Machine(frozenset(names - {""}), addresses)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _ipv4(fib_trie: str) -> Iterator[str]:
    """Addresses of this network namespace from /proc/net/fib_trie."""
    return (leaf for leaf, kinds in _FIB_LEAF.findall(fib_trie) if "/32 host LOCAL" in kinds)


def _ipv6(if_inet6: str) -> Iterator[str]:
    """Addresses from /proc/net/if_inet6 (address, interface number, ..., interface), with and without scope."""
    for line in if_inet6.splitlines():
        raw, number, *_, interface = line.split()
        address = ipaddress.IPv6Address(bytes.fromhex(raw))
        yield from (f"{address}", f"{address}%{interface.lower()}", f"{address}%{int(number, 16)}")


def _search_domain(resolv_conf: str) -> str:
    """The first domain of the last `search` or `domain` line; the last one counts (resolv.conf(5))."""
    domain = ""
    for line in resolv_conf.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] in {"search", "domain"}:
            domain = words[1].lower().strip(".")
    return domain
