"""The plan: which sources an agent is asked to read, written as the orders it takes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from rollbook.sources.base import Source

__all__ = ["LARGEST", "Plan"]

LARGEST = 16 << 20
"""The most bytes of any reading."""
ROOM = 1 << 20  # for the names of pages, which a source's limit does not count


@dataclasses.dataclass(frozen=True)
class Plan:
    """The sources to read, in order; a source's place in the plan is its id on the wire."""

    sources: tuple[Source, ...]

    @classmethod
    def of(cls, sources: Sequence[Source]) -> Plan:
        """A plan that reads plain files first and what starts programs last, so that a cut leaves the most."""
        return cls(tuple(sorted(sources, key=lambda source: source.runs_program)))

    def orders(self) -> bytes:
        """The plan as lines for the agent. Tabs part the fields; no declared path or argument holds one."""
        lines: list[tuple[str, ...]] = []
        for number, source in enumerate(self.sources):
            limits = (str(number), str(source.every), str(source.limit), str(int(source.seconds * 1000)))
            lines.append(("source", *limits))
            lines.extend((ask.op, *ask.args) for ask in source.asks)
        return "".join("\t".join(line) + "\n" for line in lines).encode()

    @functools.cached_property
    def rooms(self) -> tuple[int, ...]:
        """The most bytes that a reading of each source has if the agent keeps to its orders.

        The limit is for all files of a source together, but for each of its programs.
        """
        return tuple(
            LARGEST
            if any(ask.op in ("each", "space") for ask in source.asks)
            else min(LARGEST, source.limit * (1 + sum(ask.op == "run" for ask in source.asks)) + ROOM)
            for source in self.sources
        )
