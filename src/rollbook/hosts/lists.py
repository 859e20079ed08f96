"""Host lists as the user types them: nodesets with users, slots and groups.

    root@node[1-4]:8    user and slots apply to all four
    10.0.0.[1-9]        an address is a name like any other
    [fe80::1%eth0]:4    IPv6 with slots
    @gpu  @rack:r1      groups of the site

An IPv6 address without slots needs no brackets: with two or more colons, none of them separates slots.
"""

from __future__ import annotations

import re

from rollbook.errors import HostListError, UsageError
from rollbook.hosts import groups
from rollbook.hosts.model import Host, Hosts, add_hosts
from rollbook.hosts.nodeset import Term, combine, names

__all__ = ["read_list", "slots_of", "user_of"]

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_SLOTS = re.compile(r"[1-9][0-9]{0,5}")
_BRACKETED_ADDRESS = re.compile(r"\[[^\[\]]*:[^\[\]]*\]")
_BRACKET_OR_COLON = re.compile(r"\[[^\[\]]*\]|:")


def read_list(text: str) -> Hosts:
    """The hosts of one list, in the order written; raises `HostListError`."""
    return combine(text, lambda term: _resolve(text, term), add_hosts)


def _resolve(text: str, term: Term) -> Hosts:
    _, start, end = term
    if text[start] == "@":
        try:
            return {name: Host(name) for name in groups.members(text[start:end])}
        except UsageError as error:
            raise HostListError(text, start, str(error)) from error
    user, slots = None, None
    at = text.find("@", start, end)
    if at >= 0:
        user, start = user_of(text, start, at), at + 1
    colon = _slots_colon(text, start, end)
    if colon is not None:
        slots, end = slots_of(text, colon + 1, end), colon
    if start == end:
        raise HostListError(text, start - 1 if user else start, "no host is named here")
    return {name: Host(name, user, slots) for name in names(text, start, end)}


def user_of(text: str, start: int, end: int) -> str:
    """The user name between `start` and `end`; it never looks like an option."""
    found = _USER.match(text, start, end)
    if found is None or found.end() < end:
        raise HostListError(text, found.end() if found else start, "not a user name")
    return found[0]


def slots_of(text: str, start: int, end: int) -> int:
    """The slots between `start` and `end`."""
    found = _SLOTS.fullmatch(text, start, end)
    if found is None:
        raise HostListError(text, start if start < end else start - 1, "slots must be a number from 1 to 999999")
    return int(found[0])


def _slots_colon(text: str, start: int, end: int) -> int | None:
    """The position of the colon before the slots: after a bracketed address, or the only one outside brackets."""
    address = _BRACKETED_ADDRESS.match(text, start, end)
    if address:
        if address.end() < end and text[address.end()] != ":":
            raise HostListError(text, address.end(), "only :slots can follow an address in brackets")
        return address.end() if address.end() < end else None
    colons = [found.start() for found in _BRACKET_OR_COLON.finditer(text, start, end) if found[0] == ":"]
    return colons[0] if len(colons) == 1 else None
