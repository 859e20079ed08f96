"""Reading a line by the places of its numbers, which are found out by trying.

A source that takes its numbers as they are written says so. A line of it is then parsed a few times with other
numbers in it; where each of them turns up among the values is where the numbers of later lines belong, as long as
the rest of the line stays the same. What does not turn out plainly is left to the source's parser.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence

from rollbook.series.layout import State

__all__ = ["Template"]

# A number that stands alone: not the 0 of eth0 nor the 10 of avg10, but both of 1/200.
NUMBER = re.compile(rb"(?<![\w.+-])(\d+(?:\.\d+)?)(?![\w.])")
DIGITS = 18  # a number of so many fits 64 bits
MOST_SINGLE = 64  # numbers of a line that are tried one by one

Read = Callable[[bytes], State | None]
"""The values as they are when the line reads like that, or None where it then gives something else."""


class Template:
    """How one line is read: which of its parts must stay, and where its numbers go."""

    def __init__(self, parts: Sequence[bytes], free: Sequence[int], wholes: list[tuple[int, int]]) -> None:
        self._size, self._free = len(parts), list(free)
        self._fixed = [index for index in range(len(parts)) if index not in set(free)]
        self._words = [parts[index].strip() for index in self._fixed]
        self._runs = _runs(wholes)
        self._decimals: list[tuple[int, int]] = []
        self._words_only = False

    @classmethod
    def learnt(cls, line: bytes, read: Read) -> Template | None:
        """Find out by trying; None where the line is not read number by number."""
        base, parts = read(line), NUMBER.split(line)
        if base is None or len(parts) < 3:
            return None
        free = list(range(1, len(parts), 2))
        template = _tried(parts, free, base, read)
        if template is None and len(free) <= MOST_SINGLE:
            # Some numbers are part of a name, such as a device's: those stay as they are.
            free = [index for index in free if _tried(parts, [index], base, read) is not None]
            template = _tried(parts, free, base, read)
        return template

    def apply(self, line: bytes, state: State) -> bool:
        """Put the numbers of the line where they belong; False, and perhaps some of them put, if it has changed."""
        parts = NUMBER.split(line)
        if len(parts) != self._size or [parts[index].strip() for index in self._fixed] != self._words:
            return False
        try:
            for first, last, place in self._runs:
                numbers = parts[first : 2 * last - first : 2]
                if max(map(len, numbers)) > DIGITS:
                    return False
                state.wholes[place : place + last - first] = array("q", map(int, numbers))
            for index, place in self._decimals:
                state.decimals[place] = float(parts[index])
        except ValueError:  # a decimal where a whole number was
            return False
        return True
