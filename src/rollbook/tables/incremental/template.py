"""Reading a line by a pattern: what of it must stay as it is, and where each number that may change goes.

Which numbers go where is found out by trying, see `learning`.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable

import msgspec

from rollbook.tables.incremental.layout import State

__all__ = ["PARTING", "Apply", "Places", "Spans", "Template", "without_numbers"]

ALONE = re.compile(rb"(?<!\S)\d+(\.\d+)?(?!\S)")
NUMERIC = b"0123456789. \t"
PARTING = bytes.maketrans(b"=/:", b"   ")
"""What parts words besides blanks."""
MANY = 8  # numbers at the end of a line that nobody looks at
# What a number is read by where it becomes a whole number of 64 bits, a decimal, or nothing.
PATTERNS = {"q": rb"(\d{1,18}+)", "d": rb"(\d++(?:\.\d++)?+)", "": rb"\d++(?:\.\d++)?+"}

Apply = Callable[[bytes, State], bool]
"""Puts the numbers of a line where they belong; False, and nothing put, if the rest of it has changed."""
Match = Callable[[bytes], re.Match[bytes] | None]
Spans = list[tuple[int, int]]
"""Where each word of a line begins and ends."""
Places = list[tuple[int, str, int]]
"""The number of a word, `q` or `d`, and its place among the whole numbers or the decimals, of which it may have two."""

# As int(), in a third of its time; raises `msgspec.DecodeError` for decimals and zeros before a number.
_whole_number = msgspec.json.Decoder(int).decode
_numbers = msgspec.json.Decoder(list[int | float]).decode


class Template:
    """How one line is read: of its words, the numbers that are `free` to change, and the places of those that count."""

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
        only = len(free) == len(places) == len(wholes) == 1
        self.apply: Apply = (
            _only(line, spans[free[0]], wholes[0][1]) if only else _several(self._match, wholes, decimals)
        )

    def fits(self, line: bytes) -> bool:
        """Whether the line is one that the template can read."""
        return self._match(line) is not None


def without_numbers(line: bytes) -> bytes:
    """What is left of a line when its numbers are taken out: as long as it stays, the line speaks of the same."""
    return b" ".join(ALONE.sub(b"#", line.translate(PARTING)).split()) + line.translate(None, NUMERIC)


def _only(line: bytes, span: tuple[int, int], place: int) -> Apply:
    """The line has this number and no other that may change, as most have."""
    begin, end = span
    before, after = line[:begin], line[end:]
    before = before[: len(before.rstrip(b" \t")) + 1]  # one blank, where there are any
    first, last = len(before), -len(after) or None

    def apply(line: bytes, state: State) -> bool:
        if not (line.startswith(before) and line.endswith(after)):
            return False
        try:
            number = _whole_number(line[first:last])
            if number >= 0:
                state.wholes[place] = number
                return True
        except (msgspec.DecodeError, OverflowError):  # zeros before a number, a fraction, more than 64 bits
            pass
        return False

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


def _fixed(text: bytes) -> bytes:
    """A pattern for what stands between numbers; there may be more blanks or less, where there are any."""
    return rb"[ \t]++".join(map(re.escape, re.split(rb"[ \t]+", text)))
