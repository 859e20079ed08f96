"""Reading a line by the places of its numbers, which are found out by trying.

In a source that declares its numbers plain, a line that changed is parsed a few times with other numbers in it; where
each of them turns up among the values is where the numbers of later lines belong, as long as the rest of the line
stays the same. What does not turn out plainly is left to the source's parser.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable

import msgspec

from rollbook.series.layout import State

__all__ = ["Apply", "Read", "Template", "without_numbers"]

NUMBER = re.compile(rb"\d+(\.\d+)?")
ALONE = re.compile(rb"(?<!\S)\d+(\.\d+)?(?!\S)")
NUMERIC = b"0123456789. \t"
PARTING = bytes.maketrans(b"=/:", b"   ")
MOST_SINGLE = 64  # numbers of a line that are tried one by one
MANY = 8  # numbers at the end of a line that nobody looks at
# What a number is read by where it becomes a whole number of 64 bits, a decimal, or nothing.
PATTERNS = {"q": rb"(\d{1,18}+)", "d": rb"(\d++(?:\.\d++)?+)", "": rb"\d++(?:\.\d++)?+"}

Read = Callable[[bytes], State | None]
"""The values as they are when the line reads like that, or None where it then gives something else."""
Apply = Callable[[bytes, State], bool]
"""Puts the numbers of a line where they belong; False, and nothing put, if the rest of it has changed."""
Match = Callable[[bytes], re.Match[bytes] | None]
Spans = list[tuple[int, int]]
Places = list[tuple[int, str, int]]
"""The number of a word, `q` or `d`, and its place among the whole numbers or the decimals, of which it may have two."""

_whole = msgspec.json.Decoder(int).decode  # takes a third of the time of int()
_numbers = msgspec.json.Decoder(list[int | float]).decode


class Template:
    """How one line is read: a pattern of what must stay as it is, and where each number that may change goes."""

    def __init__(self, line: bytes, spans: Spans, free: list[int], places: Places) -> None:
        kinds = {index: kind for index, kind, _ in reversed(places)}
        used = [index for index in free if index in kinds]
        ignored = sum(index > max(used, default=-1) for index in free)
        ignored = ignored if ignored >= MANY else 0
        pattern, done = list[bytes](), 0
        for index in free[: len(free) - ignored]:
            first, last = spans[index]
            pattern += [_fixed(line[done:first]), PATTERNS[kinds.get(index, "")]]
            done = last
        # `intr` goes on with a number for every interrupt: all of them are passed over together.
        pattern += [_fixed(line[done : spans[free[-ignored]][0]]), rb"[ \d]*+"] if ignored else [_fixed(line[done:])]
        self._match = re.compile(b"".join(pattern)).fullmatch
        wholes = [(used.index(index), place) for index, kind, place in places if kind == "q"]
        decimals = [(used.index(index), place) for index, kind, place in places if kind == "d"]
        alone = len(places) == len(wholes) == 1
        self.apply: Apply = _one(self._match, wholes[0][1]) if alone else _several(self._match, wholes, decimals)

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
            free = [index for index in free if _found(line, spans, [index], base, read) is not None]
            template = cls._tried(line, spans, free, base, read) if free else None
        return template

    @classmethod
    def _tried(cls, line: bytes, spans: Spans, free: list[int], base: State, read: Read) -> Template | None:
        """A template for these numbers, if it agrees with the parser on small, large and no values."""
        places = _found(line, spans, free, base, read)
        if places is None:
            return None
        self = cls(line, spans, free, places)
        tried = [_with(line, spans, free, number) for number in (lambda _: 0, lambda _: 1, lambda i: 10**15 + i)]
        if self._match(line[: spans[free[-1]][0]]):
            tried.append(line[: spans[free[-1]][0]])  # a number less
        return self if all(self._agrees(one, base, read) for one in (line, *tried)) else None

    def _agrees(self, line: bytes, base: State, read: Read) -> bool:
        state = base.copy()
        return self.apply(line, state) and state == read(line)

    def fits(self, line: bytes) -> bool:
        """Whether the line is one that the template can read."""
        return self._match(line) is not None


def without_numbers(line: bytes) -> bytes:
    """What is left of a line when its numbers are taken out: as long as it stays, the line speaks of the same."""
    return b" ".join(ALONE.sub(b"#", line.translate(PARTING)).split()) + line.translate(None, NUMERIC)


def _one(match: Match, place: int) -> Apply:
    def apply(line: bytes, state: State) -> bool:
        found = match(line)
        if found is None:
            return False
        try:
            state.wholes[place] = _whole(found[1])
        except msgspec.DecodeError:  # zeros before a number
            return False
        return True

    return apply


def _several(match: Match, wholes: list[tuple[int, int]], decimals: list[tuple[int, int]]) -> Apply:
    """Of groups of the match, the places of those that are whole numbers, and of decimals."""
    runs = []
    for _, run in itertools.groupby(wholes, key=lambda pair: pair[1] - pair[0]):
        (first, place), *others = run
        count = 1 + len(others)
        runs.append((struct.Struct(f"{count}q").pack_into, 8 * place, slice(first, first + count)))

    def apply(line: bytes, state: State) -> bool:
        found = match(line)
        if found is None:
            return False
        try:
            numbers = _numbers(b"[%b]" % b",".join(found.groups()))
        except msgspec.DecodeError:
            return False
        for put, offset, some in runs:
            put(state.wholes, offset, *numbers[some])
        for group, place in decimals:
            state.decimals[place] = numbers[group]
        return True

    return apply


def _found(line: bytes, spans: Spans, free: list[int], base: State, read: Read) -> Places | None:
    """Where these numbers turn up among the values; None where they change anything else."""
    probe = _with(line, spans, free, lambda number: 7_000_003 + 11 * number)
    found = read(probe)
    if found is None or found.objects != base.objects:
        return None
    words = probe.translate(PARTING).split()
    whole = {int(words[index]): index for index in free if words[index].isdigit()}
    decimal = {float(words[index]): index for index in free}
    places: Places = []
    try:
        for place, (before, after) in enumerate(zip(base.wholes, found.wholes, strict=True)):
            if before != after:
                places.append((whole[after], "q", place))
        for place, (was, value) in enumerate(zip(base.decimals, found.decimals, strict=True)):
            if was != value:
                places.append((decimal[value], "d", place))
    except KeyError:
        return None
    return places


def _fixed(text: bytes) -> bytes:
    """A pattern for what stands between numbers; there may be more blanks or less, where there are any."""
    return rb"[ \t]++".join(map(re.escape, re.split(rb"[ \t]+", text)))


def _with(line: bytes, spans: Spans, free: list[int], number: Callable[[int], int]) -> bytes:
    """The line with other numbers in these places, decimals with a fraction."""
    pieces, done = [], 0
    for index in free:
        first, last = spans[index]
        fraction = b".25" if b"." in line[first:last] else b""
        pieces += [line[done:first], b"%d" % number(index), fraction]
        done = last
    return b"".join([*pieces, line[done:]])
