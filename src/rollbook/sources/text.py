"""Helpers for parsers of kernel text: bounded numbers, tables of words, CPU lists, pages grouped by device."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from rollbook.errors import ParseError
from rollbook.sources.base import Pages

__all__ = [
    "bounded",
    "bus",
    "celsius",
    "choice",
    "columns_of",
    "devices",
    "fields_of",
    "flag",
    "integer",
    "integers",
    "last_part",
    "levels",
    "lines_of",
    "members",
    "natural",
    "number",
    "optional",
    "pci_slot",
    "tally",
    "unescape",
]

_U64 = 1 << 64

# The first match wins. IDE disks (in VMs) count as sata, disks behind a hardware RAID controller as scsi.
_BUSES = (
    (r"/nvme", "nvme"),
    (r"/virtio\d", "virtio"),
    (r"/usb\d", "usb"),
    (r"/session\d+/", "iscsi"),
    (r"/rport-", "fc"),
    (r"/end_device-", "sas"),
    (r"/ata\d+/", "sata"),
    (r"(?i)/vmbus", "vmbus"),
    (r"/vbd-", "xen"),
    (r"/mmc_host/", "mmc"),
    (r"/ndbus\d", "pmem"),
    (r"/rbd/", "rbd"),
    (r"/host\d+/", "scsi"),
)

S = TypeVar("S")
T = TypeVar("T")


def integer(word: str, base: int = 10) -> int:
    """An integer of at most 64 bits; raises `ParseError`."""
    if word.isdigit() and word.isascii() and base == 10 and len(word) < 20:
        return int(word)  # the common case, and fast
    # int() accepts '1_000' and digits of other scripts; the kernel writes neither.
    if not word.isascii() or "_" in word or len(word) > 32:
        raise ParseError(f"not a number: {word[:40]!r}")
    try:
        value = int(word, base)
    except ValueError:
        raise ParseError(f"not a number: {word[:40]!r}") from None
    return bounded(value)


def bounded(value: int) -> int:
    """The number itself if it fits in 64 bits, which a sum or product may not; raises `ParseError`."""
    if not -_U64 < value < _U64:
        raise ParseError(f"number out of range: {value}")
    return value


def integers(words: Iterable[str]) -> list[Any]:
    """Integers to unpack into a `Facts` type; typed `Any` because mypy checks them against all later fields."""
    return [integer(word) for word in words]


def number(word: str) -> float:
    """A finite decimal number; raises `ParseError`."""
    if not re.fullmatch(r"[+-]?\d{1,20}(\.\d{0,20})?", word, re.ASCII):
        raise ParseError(f"not a number: {word[:40]!r}")
    return float(word)


def lines_of(text: str) -> list[str]:
    """The lines that are not blank. Only a newline ends a line: paths may contain other line separators."""
    return [line for line in text.split("\n") if line.strip()]


def fields_of(text: str, separator: str | None = None) -> dict[str, str]:
    """Stripped values of `name SEPARATOR value` lines by name; the default separator is blanks."""
    found = {}
    for line in lines_of(text):
        name, *value = line.split(separator, 1)
        if not value:
            raise ParseError(f"no value: {line[:80]!r}")
        found[name.strip()] = value[0].strip()
    return found


def optional(value: S | None, read: Callable[[S], T]) -> T | None:
    """`read(value)`, or None if the value is absent or empty: absent is not zero."""
    return read(value) if value else None


def natural(word: str | None) -> int | None:
    """A number of at least zero; None if absent or negative, because the kernel writes -1 for unknown."""
    value = optional(word, integer)
    return None if value is None or value < 0 else value


def flag(word: str) -> bool:
    """A boolean, which sysfs writes as 1 or 0 and module parameters as Y or N."""
    if word not in ("0", "1", "N", "Y"):
        raise ParseError(f"not a boolean: {word[:40]!r}")
    return word in ("1", "Y")


def celsius(word: str) -> float:
    """A temperature in degrees Celsius, which the kernel writes in thousandths."""
    return integer(word) / 1000


def tally(words: Iterable[str]) -> dict[str, int]:
    """The count of each value that is not empty; one entry if all CPUs of a host agree."""
    return dict(sorted(Counter(filter(None, map(str.strip, words))).items()))


def last_part(path: str) -> str:
    """The last component of a path."""
    return path.rpartition("/")[2]


def pci_slot(link: str) -> str | None:
    """The last PCI address in the target of a sysfs link, such as `0000:3b:00.0`."""
    found = re.findall(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)", link)
    return found[-1] if found else None


def bus(link: str) -> str | None:
    """The bus of a storage device, from the target of its sysfs link; None if unknown."""
    return next((name for pattern, name in _BUSES if re.search(pattern, link)), None)


def columns_of(line: str, at_least: int) -> list[str]:
    """The words of a line; raises `ParseError` for fewer than `at_least`. Later kernels append columns."""
    words = line.split()
    if len(words) < at_least:
        raise ParseError(f"{len(words)} columns, expected at least {at_least}: {line[:80]!r}")
    return words


def members(cpulist: str) -> list[int]:
    """The numbers in a CPU or node list such as `0-3,8`."""
    found: list[int] = []
    for piece in cpulist.strip().split(","):
        if not piece:
            continue
        first, dash, last = piece.partition("-")
        low, high = integer(first), integer(last if dash else first)
        if len(found) + high - low > 65536:
            raise ParseError(f"list too long: {piece!r}")
        found.extend(range(low, high + 1))
    return found


def choice(text: str) -> str:
    """The choice in brackets, as in `always [madvise] never`; the whole text if there are no brackets."""
    marked = re.search(r"\[([^\[\]]*)\]", text)
    return marked[1] if marked else text.strip()


def unescape(path: str) -> str:
    r"""A path with the kernel's octal escapes, such as `\040` for a blank, decoded."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda m: chr(int(m[1], 8)), path)


def devices(pages: Pages, parent: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Group pages by device, the path component after `parent`; attributes are named by the rest of the path.

    `devices(pages, "/sys/class/net/")` yields `("eth0", {"mtu": "1500", "device/driver": "…/virtio_net"})`.
    """
    grouped: dict[str, dict[str, str]] = {}
    for path, text in pages.items():
        if path.startswith(parent):
            name, _, attribute = path[len(parent) :].partition("/")
            grouped.setdefault(name, {})[attribute] = text.strip()
    yield from sorted(grouped.items())


def levels(pages: Pages, file: str) -> list[str]:
    """The texts of one file name in a directory and its ancestors, deepest first."""
    paths = [path for path in pages if path.rpartition("/")[2] == file]
    return [pages[path].strip() for path in sorted(paths, key=lambda path: -path.count("/"))]
