"""/proc/softirqs: soft interrupts by type, summed over all CPUs (filesystems/proc)."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, columns, counter
from rollbook.sources.text import bounded, integer, lines_of


class SoftIrqs(Facts):
    """Soft interrupts of each type since boot, summed over all CPUs."""

    totals: Annotated[dict[str, int], columns(counter("interrupts"))]


def parse(text: str) -> SoftIrqs:
    """A header with the CPUs, then `TYPE: number…` with one number per CPU."""
    header, *lines = text.split("\n")
    cpus = len(header.split())
    totals = {}
    for line in lines_of("\n".join(lines)):
        kind, colon, numbers = line.partition(":")
        words = numbers.split()
        if not colon or len(words) != cpus:
            raise ParseError(f"{len(words)} numbers for {cpus} CPUs: {line[:80]!r}")
        totals[kind.strip()] = bounded(sum(integer(word) for word in words))
    return SoftIrqs(totals)


SOURCE = File("/proc/softirqs", parse, every=10)
