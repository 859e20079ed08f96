"""/proc/net/fib_trie, if_inet6, route: IP addresses of the host without loopback (proc_pid_net(5))."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Files, Pages, info, unique
from rollbook.sources.text import columns_of, integer, lines_of

# Interfaces with the same addresses on every host: those of container and virtual machine software, and links to a BMC
# or DPU, which are USB interfaces or `tmfifo_net0`.
PRIVATE = re.compile(
    r"(cni-podman|docker|kube-ipvs|lxcbr|lxdbr|nerdctl|podman|virbr)\d+|br-[0-9a-f]{12}|docker_gwbridge|nodelocaldns"
    r"|tmfifo_net\d+|br_tmfifo|idrac|usb\d+|en[oPps][0-9a-z]*u\d[0-9a-z]*|enx[0-9a-f]{12}"
)
LINK_SCOPE = 0x20
LOOPBACK_SCOPE = 0x10


class Addresses(Facts):
    """Sorted addresses. Those in `ipv4` and `ipv6` belong to one host only.

    Those in `private` may be on several hosts: link-local addresses, bridges for guests, links to a BMC or DPU,
    load-balanced services.
    """

    ipv4: Annotated[list[str], unique()]
    ipv6: Annotated[list[str], unique()]
    private: Annotated[list[str], info()] = msgspec.field(default_factory=list)
    by_interface: Annotated[dict[str, list[str]], info()] = msgspec.field(default_factory=dict)


def parse(pages: Pages) -> Addresses:
    """Assign each IPv4 address to an interface by the route to its network: fib_trie does not name interfaces.

    An address outside all networks of the host belongs to a service (load balancers and Kubernetes add such), unless
    it is the only one: some clouds configure hosts that way.
    """
    networks = _networks(pages.get("route", ""))
    ipv4: set[str] = set()
    ipv6: set[str] = set()
    private: set[str] = set()
    alone: set[str] = set()
    by_interface: dict[str, set[str]] = {}
    for address in _ipv4(pages.get("ipv4", "")):
        name = _interface(address, networks)
        if address.is_link_local or PRIVATE.fullmatch(name):
            private.add(str(address))
        else:
            (ipv4 if name or "route" not in pages else alone).add(str(address))
        if name:
            by_interface.setdefault(name, set()).add(str(address))
    (ipv4 if not ipv4 and len(alone) == 1 else private).update(alone)
    for line in lines_of(pages.get("ipv6", "")):
        digits, _, _, scope, _, name = columns_of(line, 6)[:6]
        if integer(scope, 16) != LOOPBACK_SCOPE:
            text = _ipv6(digits)
            (private if integer(scope, 16) == LINK_SCOPE or PRIVATE.fullmatch(name) else ipv6).add(text)
            by_interface.setdefault(name, set()).add(text)
    interfaces = {name: sorted(found) for name, found in sorted(by_interface.items())}
    return Addresses(sorted(ipv4), sorted(ipv6), sorted(private), interfaces)


def _ipv6(digits: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{32}", digits):
        raise ParseError(f"not an IPv6 address: {digits[:40]!r}")
    return str(ipaddress.IPv6Address(int(digits, 16)))


def _ipv4(trie: str) -> set[ipaddress.IPv4Address]:
    """Addresses of leaves `|-- ADDRESS` followed by `/32 host LOCAL`."""
    found = set()
    leaf = ""
    for line in lines_of(trie):
        words = line.split()
        if words[0] == "|--":
            leaf = words[1]
        elif words == ["/32", "host", "LOCAL"]:
            found.add(ipaddress.IPv4Address(leaf))
    return {address for address in found if not address.is_loopback}


def _interface(address: ipaddress.IPv4Address, networks: dict[ipaddress.IPv4Network, str]) -> str:
    """The interface of the smallest network that contains the address, or an empty string."""
    around = (ipaddress.IPv4Network((address, length), strict=False) for length in range(32, -1, -1))
    return next((networks[network] for network in around if network in networks), "")


def _networks(routes: str) -> dict[ipaddress.IPv4Network, str]:
    """Directly attached networks: routes without a gateway. Numbers are hexadecimal in the host's byte order."""
    rows = [columns_of(line, 8) for line in lines_of(routes)[1:]]
    numbers = [(row[0], integer(row[1], 16), integer(row[7], 16)) for row in rows if integer(row[2], 16) == 0]
    order: Literal["little", "big"] = "little" if all(_masks(mask, "little") for *_, mask in numbers) else "big"
    networks = {}
    for name, *pair in numbers:
        network, mask = (ipaddress.IPv4Address(n.to_bytes(4, order)) for n in pair)
        networks[ipaddress.IPv4Network(f"{network}/{mask}", strict=False)] = name
    return networks


def _masks(number: int, order: Literal["little", "big"]) -> bool:
    """Whether the number is a netmask in that byte order: ones, then zeros."""
    rest = int.from_bytes(number.to_bytes(4, order), "big") ^ 0xFFFFFFFF
    return rest & (rest + 1) == 0


SOURCE = Files({"ipv4": "/proc/net/fib_trie", "ipv6": "/proc/net/if_inet6", "route": "/proc/net/route"}, parse)
