"""Reading a line by a pattern: the parts that must not change, and the position of each number that may.

`learning` finds the positions.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable

import msgspec

from rollbook.tables.incremental.layout import State

__all__ = ["SEPARATORS", "Apply", "Places", "Spans", "Template", "without_numbers"]

ALONE = re.compile(rb"(?<!\S)\d+(\.\d+)?(?!\S)")
NUMERIC = b"0123456789. \t"
SEPARATORS = bytes.maketrans(b"=/:", b"   ")
"""Characters that separate words, besides blanks."""
MANY = 8  # this many unused numbers at the end of a line are matched by one pattern
# The pattern of a number that becomes a 64-bit integer, a float, or is not used.
PATTERNS = {"q": rb"(\d{1,18}+)", "d": rb"(\d++(?:\.\d++)?+)", "": rb"\d++(?:\.\d++)?+"}

Apply = Callable[[bytes, State], bool]
"""Stores the numbers of a line at their positions; stores nothing and returns False if the rest of it has changed."""
Match = Callable[[bytes], re.Match[bytes] | None]
Spans = list[tuple[int, int]]
"""Start and end of each word of a line."""
Places = list[tuple[int, str, int]]
"""Index of a word, `q` or `d`, and its position among the integers or floats; a word may have two positions."""

# Takes a third of the time of int(); raises `msgspec.DecodeError` for fractions and leading zeros.
_whole_number = msgspec.json.Decoder(int).decode
_numbers = msgspec.json.Decoder(list[int | float]).decode


class Template:
    """Reads one line: `free` are the words that are numbers and may change, `places` the positions of their values."""

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
        # `intr` has one number per interrupt: one pattern matches all of them.
        pattern += [_fixed(line[done : spans[free[-ignored]][0]]), rb"[ \d]*+"] if ignored else [_fixed(line[done:])]
        self._match = re.compile(b"".join(pattern)).fullmatch
        integers = [(used.index(index), place) for index, kind, place in places if kind == "q"]
        floats = [(used.index(index), place) for index, kind, place in places if kind == "d"]
        only = len(free) == len(places) == len(integers) == 1
        self.apply: Apply = (
            _single(line, spans[free[0]], integers[0][1]) if only else _multiple(self._match, integers, floats)
        )

    def fits(self, line: bytes) -> bool:
        """Whether the template can read the line."""
        return self._match(line) is not None


def without_numbers(line: bytes) -> bytes:
    """The line without its numbers; lines for which it is equal have the same meaning."""
    return b" ".join(ALONE.sub(b"#", line.translate(SEPARATORS)).split()) + line.translate(None, NUMERIC)


def _single(line: bytes, span: tuple[int, int], place: int) -> Apply:
    """Read a line with one number that may change, which is the common case."""
    begin, end = span
    before, after = line[:begin], line[end:]
    before = before[: len(before.rstrip(b" \t")) + 1]  # at most one blank
    first, last = len(before), -len(after) or None

    def apply(line: bytes, state: State) -> bool:
        if not (line.startswith(before) and line.endswith(after)):
            return False
        try:
            number = _whole_number(line[first:last])
            if number >= 0:
                state.integers[place] = number
                return True
        except (msgspec.DecodeError, OverflowError):  # leading zeros, a fraction, more than 64 bits
            pass
        return False

    return apply


def _multiple(match: Match, integers: list[tuple[int, int]], floats: list[tuple[int, int]]) -> Apply:
    """Read a line with several numbers; the pairs are the group of the match and the position of its value."""
    runs = []
    for _, run in itertools.groupby(integers, key=lambda pair: pair[1] - pair[0]):
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
            put(state.integers, offset, *numbers[some])
        for group, place in floats:
            state.floats[place] = numbers[group]
        return True

    return apply


def _fixed(text: bytes) -> bytes:
    """A pattern for the text between numbers; the number of blanks in a row may vary."""
    return rb"[ \t]++".join(map(re.escape, re.split(rb"[ \t]+", text)))
