"""Small readers of kernel text, shared by the parsers: numbers with bounds, word lists, CPU lists, path groups."""

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
    "chosen",
    "columns_of",
    "devices",
    "fields_of",
    "flag",
    "integer",
    "integers",
    "last_part",
    "lines_of",
    "members",
    "natural",
    "number",
    "pci_slot",
    "tally",
    "unescape",
    "when",
]

_U64 = 1 << 64

# The first that fits. IDE disks, today a VM's, count as sata; disks behind a RAID card's own firmware as scsi.
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
    """A whole number as the kernel writes it, at most 64 bits wide."""
    if word.isdigit() and word.isascii() and base == 10 and len(word) < 20:
        return int(word)  # nearly all there is
    # int() takes '1_000' and other alphabets' digits; the kernel writes neither.
    if not word.isascii() or "_" in word or len(word) > 32:
        raise ParseError(f"not a number: {word[:40]!r}")
    try:
        value = int(word, base)
    except ValueError:
        raise ParseError(f"not a number: {word[:40]!r}") from None
    return bounded(value)


def bounded(value: int) -> int:
    """The number itself, where it fits 64 bits: sums and products of a host's numbers may not."""
    if not -_U64 < value < _U64:
        raise ParseError(f"number out of range: {value}")
    return value


def integers(words: Iterable[str]) -> list[Any]:
    """Whole numbers to be unpacked into a record; as `int`, mypy would hold them against every later field too."""
    return [integer(word) for word in words]


def number(word: str) -> float:
    """A decimal number as the kernel writes it; never infinite, never not-a-number."""
    if not re.fullmatch(r"[+-]?\d{1,20}(\.\d{0,20})?", word, re.ASCII):
        raise ParseError(f"not a number: {word[:40]!r}")
    return float(word)


def lines_of(text: str) -> list[str]:
    """The lines that are not blank. Only a newline ends a line: paths may hold the other characters that could."""
    return [line for line in text.split("\n") if line.strip()]


def fields_of(text: str, separator: str | None = None) -> dict[str, str]:
    """`name SEPARATOR value` lines by name, both stripped; blanks separate unless told otherwise."""
    found = {}
    for line in lines_of(text):
        name, *value = line.split(separator, 1)
        if not value:
            raise ParseError(f"no value: {line[:80]!r}")
        found[name.strip()] = value[0].strip()
    return found


def when(value: S | None, read: Callable[[S], T]) -> T | None:
    """What `read` makes of the value; None where it is absent or empty, since absent is not zero."""
    return read(value) if value else None


def natural(word: str | None) -> int | None:
    """A number that is never below zero; None where absent or -1, which the kernel writes for unknown."""
    value = when(word, integer)
    return None if value is None or value < 0 else value


def flag(word: str) -> bool:
    """A switch, which sysfs writes as 1 or 0 and module parameters as Y or N."""
    if word not in ("0", "1", "N", "Y"):
        raise ParseError(f"neither on nor off: {word[:40]!r}")
    return word in ("1", "Y")


def celsius(word: str) -> float:
    """A temperature in degrees, which the kernel writes in thousandths."""
    return integer(word) / 1000


def tally(words: Iterable[str]) -> dict[str, int]:
    """How often each value occurs, empty ones left out: one entry where all CPUs of a host agree."""
    return dict(sorted(Counter(filter(None, map(str.strip, words))).items()))


def last_part(path: str) -> str:
    """The name a path or a link's target ends with."""
    return path.rpartition("/")[2]


def pci_slot(link: str) -> str | None:
    """The PCI address nearest to the device in a sysfs link's target, such as `0000:3b:00.0`."""
    found = re.findall(r"/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?=/|$)", link)
    return found[-1] if found else None


def bus(link: str) -> str | None:
    """What a storage device hangs on, from the target of its sysfs link; None where that does not tell."""
    return next((name for pattern, name in _BUSES if re.search(pattern, link)), None)


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
        if len(found) + high - low > 65536:
            raise ParseError(f"list too long: {piece!r}")
        found.extend(range(low, high + 1))
    return found


def chosen(text: str) -> str:
    """The choice the kernel marks with brackets in `always [madvise] never`; the text itself if none is marked."""
    marked = re.search(r"\[([^\[\]]*)\]", text)
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


def levels(pages: Pages, file: str) -> list[str]:
    """The texts of one file name in a directory and its ancestors, deepest first."""
    paths = [path for path in pages if path.rpartition("/")[2] == file]
    return [pages[path].strip() for path in sorted(paths, key=lambda path: -path.count("/"))]
