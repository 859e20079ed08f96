"""Reading at once what is mostly names, each with a number: pages of many short lines, as the kernel counts in.

Such a page is compared with the one before as a whole: everything but its numbers must be the same, and of the numbers
those that changed are put to their places, which the templates of the lines tell.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterator, Sequence

import msgspec

from rollbook.series.layout import State
from rollbook.series.template import Template, whole_number

__all__ = ["Goals", "Pairs", "differing", "goals_of"]

DIGITS = b"0123456789"
NUMBERS = re.compile(rb"[0-9.]+")
APART = bytes(byte if byte in DIGITS + b"." else 32 for byte in range(256))
FEW = 2  # numbers a line has, names included; of more, comparing lines finds out sooner what has changed

Goals = Sequence[Sequence[int] | None]
"""Of each number of a page where it goes; None for those that must stay."""


def differing(now: Sequence[bytes], before: Sequence[bytes]) -> Iterator[int]:
    """The places in which two lists of the same length differ."""
    return itertools.compress(itertools.count(), map(operator.ne, now, before))


def goals_of(lines: Sequence[bytes], templates: Sequence[Template | None]) -> Goals | None:
    """Where the numbers of a page go; None for one that is better read line by line."""
    goals: list[Sequence[int] | None] = []
    for line, template in zip(lines, templates, strict=True):
        numbers = [found.start() for found in NUMBERS.finditer(line)]
        if template is not None and template.only is not None:
            start, home = template.only
            goals += [home if number == start else None for number in numbers]
        elif numbers:
            return None
    return goals if 0 < len(goals) <= FEW * len(lines) else None


class Pairs:
    """The page read last, and how the next one of the same host is read."""

    def __init__(self, goals: Goals, page: bytes) -> None:
        self._goals = goals
        self._names, self._numbers = page.translate(None, DIGITS), page.translate(APART).split()

    def apply(self, page: bytes, state: State) -> bool:
        """Put what has changed where it belongs; False, and perhaps some of it put, where more has changed."""
        names, numbers = page.translate(None, DIGITS), page.translate(APART).split()
        if names != self._names or len(numbers) != len(self._numbers):
            return False
        try:
            for index in differing(numbers, self._numbers):
                places = self._goals[index]
                if places is None:
                    return False
                for place in places:
                    state.wholes[place] = whole_number(numbers[index])
        except (msgspec.DecodeError, OverflowError):  # a decimal, zeros before a number, more than 64 bits
            return False
        self._numbers = numbers
        return True
