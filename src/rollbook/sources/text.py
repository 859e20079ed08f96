"""Small readers of kernel text, shared by the parsers: numbers with bounds, word lists, CPU lists, path groups."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rollbook.errors import ParseError
from rollbook.sources.base import Pages

__all__ = ["chosen", "columns_of", "devices", "integer", "members", "number", "unescape"]

_U64 = 1 << 64


def integer(word: str, base: int = 10) -> int:
    """A whole number as the kernel writes it, at most 64 bits wide."""
    # int() takes '1_000' and other alphabets' digits; the kernel writes neither.
    if not word.isascii() or "_" in word or len(word) > 32:
        raise ParseError(f"not a number: {word[:40]!r}")
    try:
        value = int(word, base)
    except ValueError:
        raise ParseError(f"not a number: {word[:40]!r}") from None
    if not -_U64 < value < _U64:
        raise ParseError(f"number out of range: {word!r}")
    return value


def number(word: str) -> float:
    """A decimal number as the kernel writes it; never infinite, never not-a-number."""
    if not re.fullmatch(r"[+-]?\d{1,20}(\.\d{0,20})?", word, re.ASCII):
        raise ParseError(f"not a number: {word[:40]!r}")
    return float(word)


def columns_of(line: str, at_least: int) -> list[str]:
    """The words of a line that must have at least so many; later kernels append columns."""
    words = line.split()
    if len(words) < at_least:
        raise ParseError(f"{len(words)} columns where at least {at_least} were expected: {line[:80]!r}")
    return words


def members(cpulist: str) -> list[int]:
    """`0-3,8` as the kernel writes CPU and node lists; empty text is an empty list."""
    found: list[int] = []
    for piece in cpulist.strip().split(","):
        if not piece:
            continue
        first, dash, last = piece.partition("-")
        low, high = integer(first), integer(last if dash else first)
        if high - low > 65536:
            raise ParseError(f"list too long: {piece!r}")
        found.extend(range(low, high + 1))
    return found


def chosen(text: str) -> str:
    """The choice the kernel marks with brackets in `always [madvise] never`; the text itself if none is marked."""
    marked = re.search(r"\[([^\]]*)\]", text)
    return marked[1] if marked else text.strip()


def unescape(path: str) -> str:
    r"""A path with the kernel's octal escapes (`\040` for a blank) decoded."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda m: chr(int(m[1], 8)), path)


def devices(pages: Pages, parent: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Group pages by the path element after `parent`: each device with its attributes by the rest of the path.

    `devices(pages, "/sys/class/net/")` gives `("eth0", {"mtu": "1500", "device/driver": "…/virtio_net"})`.
    """
    grouped: dict[str, dict[str, str]] = {}
    for path, text in pages.items():
        if path.startswith(parent):
            name, _, attribute = path[len(parent) :].partition("/")
            grouped.setdefault(name, {})[attribute] = text.strip()
    yield from sorted(grouped.items())
