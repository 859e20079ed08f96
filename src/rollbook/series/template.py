"""Reading a line by the places of its numbers, which are found out by trying.

In a source that declares its numbers plain, a line that changed is parsed a few times with other numbers in it; where
each of them turns up among the values is where the numbers of later lines belong, as long as the rest of the line
stays the same. What does not turn out plainly is left to the source's parser.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable

from rollbook.series.layout import State

__all__ = ["Template", "without_numbers"]

NUMBER = re.compile(rb"\d+(\.\d+)?")
ALONE = re.compile(rb"(?<!\S)\d+(\.\d+)?(?!\S)")
NUMERIC = b"0123456789. \t"
PARTING = bytes.maketrans(b"=/:", b"   ")
DIGITS = 18  # a number of so many fits 64 bits
MOST_SINGLE = 64  # numbers of a line that are tried one by one

Read = Callable[[bytes], State | None]
"""The values as they are when the line reads like that, or None where it then gives something else."""
Spans = list[tuple[int, int]]


class Template:
    """How one line is read: what must stay as it is, and where each number that may change goes."""

    def __init__(self, line: bytes, free: list[int]) -> None:
        words = line.translate(PARTING).split()
        self._size, self._rest = len(words), line.translate(None, NUMERIC)
        # The rest of the line cannot tell eth0 from eth1, nor the numbers that make a name.
        self._fixed = [i for i, word in enumerate(words) if i not in free and re.search(rb"\d", word)]
        self._words = [words[index] for index in self._fixed]
        self._runs: list[tuple[int, int, int]] = []  # first word, last + 1, place of the first
        self._decimals: list[tuple[int, int]] = []
        self._alone: tuple[bytes, bytes, int] | None = None  # what is around the only number, and its place
        self._split = -1  # words after so many are used by nobody
        self._blanks = -1

    @classmethod
    def learnt(cls, line: bytes, read: Read) -> Template | None:
        """Find out by trying; None where the line is not read number by number."""
        base = read(line)
        spans = [found.span() for found in re.finditer(rb"\S+", line.translate(PARTING))]
        free = [index for index, (a, b) in enumerate(spans) if NUMBER.fullmatch(line, a, b)]
        if base is None or not free:
            return None
        template = cls._tried(line, spans, free, base, read)
        if template is None and len(free) <= MOST_SINGLE:
            # Some numbers are part of a name, such as a device's: those stay as they are.
            free = [index for index in free if cls._tried(line, spans, [index], base, read)]
            template = cls._tried(line, spans, free, base, read) if free else None
        return template

    @classmethod
    def _tried(cls, line: bytes, spans: Spans, free: list[int], base: State, read: Read) -> Template | None:
        """A template for these numbers, if it agrees with the parser on small, large and no values."""
        probe = _with(line, spans, free, lambda number: 7_000_003 + 11 * number)
        found = read(probe)
        if found is None or found.objects != base.objects:
            return None
        self, words = cls(line, free), probe.translate(PARTING).split()
        whole = {int(words[index]): index for index in free if words[index].isdigit()}
        decimal = {float(words[index]): index for index in free}
        try:
            for place, (before, after) in enumerate(zip(base.wholes, found.wholes, strict=True)):
                if before != after:
                    self._add(whole[after], place)
            for place, (was, value) in enumerate(zip(base.decimals, found.decimals, strict=True)):
                if was != value:
                    self._decimals.append((decimal[value], place))
        except KeyError:
            return None
        if len(free) == len(self._runs) == 1 and not self._decimals:
            first, last = spans[free[0]]
            self._alone = (line[: len(line[:first].rstrip()) + 1], line[last:], self._runs[0][2])
        used = [last for _, last, _ in self._runs] + [i + 1 for i, _ in self._decimals] + [i + 1 for i in self._fixed]
        if max(used, default=0) < len(spans) and b"  " not in line:
            # `intr` goes on with a number for every interrupt: they are counted, not looked at.
            self._split, self._blanks = max(used, default=0) + 1, line.count(b" ")
        others = [_with(line, spans, free, number) for number in (lambda _: 0, lambda _: 1, lambda i: 10**15 + i)]
        return self if all(self._agrees(one, base, read) for one in (line, probe, *others)) else None

    def _add(self, index: int, place: int) -> None:
        if self._runs:
            first, last, start = self._runs[-1]
            if (index, place) == (last, start + last - first):
                self._runs[-1] = (first, last + 1, start)
                return
        self._runs.append((index, index + 1, place))

    def _agrees(self, line: bytes, base: State, read: Read) -> bool:
        state = base.copy()
        return self.apply(line, state) and state == read(line)

    def fits(self, line: bytes) -> bool:
        """Whether the line is one that the template can read."""
        if self._alone is not None:
            before, after, _ = self._alone
            return line.startswith(before) and line.endswith(after)
        return self._parts(line) is not None

    def _parts(self, line: bytes) -> list[bytes] | None:
        words = line.translate(PARTING).split(None, self._split)
        fits = (
            line.translate(None, NUMERIC) == self._rest
            and (len(words) == self._size if self._blanks < 0 else line.count(b" ") == self._blanks)
            and [words[index] for index in self._fixed] == self._words
        )
        return words if fits else None

    def apply(self, line: bytes, state: State) -> bool:
        """Put the numbers of the line where they belong; False, and perhaps some of them put, if it has changed."""
        if self._alone is not None:
            before, after, place = self._alone
            number = (line[len(before) : -len(after)] if after else line[len(before) :]).lstrip()
            if number.isdigit() and len(number) <= DIGITS and line.startswith(before) and line.endswith(after):
                state.wholes[place] = int(number)
                return True
            return False
        words = self._parts(line)
        if words is None:
            return False
        try:
            for first, last, place in self._runs:
                numbers = words[first:last]
                if max(map(len, numbers)) > DIGITS:
                    return False
                state.wholes[place : place + last - first] = array("q", map(int, numbers))
            for index, place in self._decimals:
                state.decimals[place] = float(words[index])
        except ValueError:  # a decimal where a whole number was
            return False
        return True


def without_numbers(line: bytes) -> bytes:
    """What is left of a line when its numbers are taken out: as long as it stays, the line speaks of the same."""
    return b" ".join(ALONE.sub(b"#", line.translate(PARTING)).split()) + line.translate(None, NUMERIC)


def _with(line: bytes, spans: Spans, free: list[int], number: Callable[[int], int]) -> bytes:
    """The line with other numbers in these places, decimals with a fraction."""
    pieces, done = [], 0
    for index in free:
        first, last = spans[index]
        fraction = b".25" if b"." in line[first:last] else b""
        pieces += [line[done:first], b"%d" % number(index), fraction]
        done = last
    return b"".join([*pieces, line[done:]])
