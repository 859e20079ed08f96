"""The plan: the sources an agent reads, as orders on the wire."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from rollbook.sources.base import Source

__all__ = ["LARGEST", "Plan"]

LARGEST = 16 << 20
"""Limit of the bytes of any reading."""
NAMES = 1 << 20  # bytes for the names of pages, which a source's limit does not include


@dataclasses.dataclass(frozen=True)
class Plan:
    """The sources to read, in order; a source's index is its id in the protocol."""

    sources: tuple[Source, ...]

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Plan:
        """A plan that reads files first and starts programs last, so that a timeout costs the fewest sources."""
        return cls(tuple(sorted(sources, key=lambda source: source.runs_program)))

    def orders(self) -> bytes:
        """The plan as order lines. Tabs separate the fields; no declared path or argument contains one."""
        lines: list[tuple[str, ...]] = []
        for number, source in enumerate(self.sources):
            limits = (str(number), str(source.every), str(source.limit), str(int(source.seconds * 1000)))
            lines.append(("source", *limits))
            lines.extend((order.op, *order.args) for order in source.orders)
        return "".join("\t".join(line) + "\n" for line in lines).encode()

    @functools.cached_property
    def size_limits(self) -> tuple[int, ...]:
        """The largest reading of each source, in bytes, from an agent that follows its orders.

        A source's limit applies to all its files together and to each of its programs.
        """
        return tuple(
            LARGEST
            if any(order.op in ("each", "space") for order in source.orders)
            else min(LARGEST, source.limit * (1 + sum(order.op == "run" for order in source.orders)) + NAMES)
            for source in self.sources
        )
