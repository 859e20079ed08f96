"""Nodesets: host lists in brackets, as ClusterShell, pdsh and Slurm write them.

    node[01-16,20]      padding is kept: 01 and 1 are different hosts
    n[0-10/2]           every second one
    r[1-2]n[01-04]-ib0  several dimensions, text between and after them; the last one varies fastest
    n[1-9]!n[3-4]       `,` or a blank adds, `!` removes, `&` keeps common hosts; from left to right
    fd00::[1-4]         also in IPv6 addresses; a single one may stand in brackets: [fe80::1%eth0]

Invalid text raises a `HostListError` that points at the character. Nothing is expanded before its size is checked.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from rollbook.errors import HostListError

__all__ = ["MAX_DIGITS", "MAX_HOSTS", "Term", "combine", "expand", "names"]

MAX_HOSTS = 100_000
MAX_NAME = 253  # RFC 1035: 255 octets, less the length octet and the root
MAX_DIGITS = 18  # fits 64 bits, so that a range knows its own length

_TERM = re.compile(r"(?:\[[^\[\]]*+\]|[^ \t\r\n,!&\[\]]++)++")
_GAP = re.compile(r"[ \t\r\n]*+([,!&]?)[ \t\r\n]*+")
_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"[ \t]*([0-9]+)(?:-([0-9]+)(?:/([0-9]+))?)?[ \t]*")
_PLAIN = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{MAX_NAME - 1}}}")
_ADDRESS = re.compile(r"\[([^\[\]]*:[^\[\]]*)\]")
_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9._-]")
_NOT_IN_ADDRESS = re.compile(r"[^A-Za-z0-9._:%-]")

V = TypeVar("V")


class Term(NamedTuple):
    """One word of a list: its position, and the operator before it (`,`, `!` or `&`)."""

    join: str
    start: int
    end: int


class _Span(NamedTuple):
    """`08-10`: the numbers, and the minimum number of digits."""

    numbers: range
    width: int


def expand(text: str) -> list[str]:
    """The hosts of a nodeset in the order written, each once."""
    return list(combine(text, lambda term: dict.fromkeys(names(text, term.start, term.end)), dict.update))


def combine(
    text: str,
    resolve: Callable[[Term], dict[str, V]],
    add: Callable[[dict[str, V], dict[str, V]], None],
) -> dict[str, V]:
    """Join what each term of a list resolves to, from left to right; `add` merges the second into the first."""
    found: dict[str, V] = {}
    for term in terms(text):
        more = resolve(term)
        if term.join == ",":
            add(found, more)
        else:
            found = {name: value for name, value in found.items() if (name in more) == (term.join == "&")}
        if len(found) > MAX_HOSTS:
            raise HostListError(text, term.start, f"more than {MAX_HOSTS:,} hosts in total")
    return found


def terms(text: str) -> list[Term]:
    """Split a list at commas, blanks and operators outside brackets."""
    found: list[Term] = []
    join, position = ",", len(text) - len(text.lstrip(" \t\r\n"))
    if position == len(text):
        raise HostListError(text, 0, "no host is named")
    while True:
        word = _TERM.match(text, position)
        if word is None:
            raise _misplaced(text, position)
        if len(found) == MAX_HOSTS:
            raise HostListError(text, position, f"more than {MAX_HOSTS:,} hosts in total")
        found.append(Term(join, position, word.end()))
        gap = _GAP.match(text, word.end())
        assert gap is not None, "the gap may be empty"
        if gap.end() == len(text):
            if gap[1]:
                raise HostListError(text, gap.start(1), f"no host follows '{gap[1]}'")
            return found
        if not gap[0]:
            raise _misplaced(text, word.end())
        join, position = gap[1] or ",", gap.end()


def _misplaced(text: str, at: int) -> HostListError:
    if text[at] == "]":
        return HostListError(text, at, "closing bracket without an opening one")
    if text[at] != "[":
        return HostListError(text, at, f"a host is missing before '{text[at]}'")
    inner = text.find("[", at + 1)
    if inner >= 0 and "]" in text[at:]:
        return HostListError(text, inner, "brackets cannot be nested")
    return HostListError(text, at, "the bracket is not closed")


def names(text: str, start: int, end: int) -> list[str]:
    """The host names of the term between `start` and `end`."""
    # Long lists are mostly plain names: this shortcut is worth it.
    if _PLAIN.fullmatch(text, start, end):
        return [text[start:end]]
    alone = _ADDRESS.fullmatch(text, start, end)
    if alone:
        _check(text, alone.start(1), alone.end(1), _NOT_IN_ADDRESS)
        return [_address(alone[1], text, start)]
    # ssh and similar programs would read a leading '-' as an option.
    if text[start] in "-.":
        raise HostListError(text, start, f"a host name cannot begin with '{text[start]}'")
    pieces = list(_PIECE.finditer(text, start, end))
    is_address = sum(piece[0].count(":") for piece in pieces if piece[1] is None) > 1
    parts: list[list[_Span] | str] = []
    size, length = 1, 0
    for piece in pieces:
        if piece[1] is None:
            _check(text, piece.start(), piece.end(), _NOT_IN_ADDRESS if is_address else _NOT_IN_NAME)
            parts.append(piece[0])
            length += len(piece[0])
        else:
            spans = _spans(text, piece.start(1), piece.end(1))
            parts.append(spans)
            size *= sum(len(span.numbers) for span in spans)
            length += max(len(str(span.numbers[-1]).zfill(span.width)) for span in spans)
            if size > MAX_HOSTS:
                raise HostListError(text, piece.start(), f"more than {MAX_HOSTS:,} hosts in total")
    if length > MAX_NAME:
        raise HostListError(text, start, f"a host name has at most {MAX_NAME} characters")
    found = list(map("".join, itertools.product(*map(_texts, parts))))
    return [_address(name, text, start) for name in found] if is_address else found


def _texts(part: list[_Span] | str) -> list[str]:
    if isinstance(part, str):
        return [part]
    return [f"{number:0{span.width}d}" for span in part for number in span.numbers]


def _check(text: str, start: int, end: int, wrong: re.Pattern[str]) -> None:
    odd = wrong.search(text, start, end)
    if odd:
        raise HostListError(text, odd.start(), f"a host name cannot contain {odd[0]!a}")


def _address(name: str, text: str, start: int) -> str:
    try:
        ipaddress.IPv6Address(name)
    except ValueError:
        raise HostListError(text, start, f"{name} is not an IPv6 address") from None
    return name


def _spans(text: str, start: int, end: int) -> list[_Span]:
    spans = []
    while True:
        found = _RANGE.match(text, start, end)
        stop = found.end() if found else start
        if found is None or (stop < end and text[stop] != ","):
            raise HostListError(text, stop, "a number or a range such as 01-16 is expected here")
        spans.append(_span(text, found))
        if stop == end:
            return spans
        start = stop + 1


def _span(text: str, found: re.Match[str]) -> _Span:
    for group, digits in enumerate(found.groups(), start=1):
        if digits and len(digits) > MAX_DIGITS:
            raise HostListError(text, found.start(group), f"a number has at most {MAX_DIGITS} digits")
    first, last, step = found[1], found[2] or found[1], found[3] or "1"
    if int(last) < int(first):
        raise HostListError(text, found.start(1), "the range runs backwards")
    # Slurm and pdsh write 01-100 for 01 to 99 and 100. Other uneven ends mean different hosts to different tools.
    if len(last) < len(first) or (len(last) > len(first) and last[0] == "0"):
        raise HostListError(text, found.start(2), "both ends of a range need the same padding")
    if int(step) == 0:
        raise HostListError(text, found.start(3), "a step must be at least 1")
    return _Span(range(int(first), int(last) + 1, int(step)), len(first))
