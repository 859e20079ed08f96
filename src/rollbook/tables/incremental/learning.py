"""Learning from a source's parser how its lines are read.

If a source declares its numbers plain, lines that changed are parsed a few times with other numbers. The positions at
which those numbers appear among the values are the positions of the numbers of later lines, as long as the rest of the
line stays the same. Lines without a clear result are left to the source's parser.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from rollbook.tables.incremental.layout import State
from rollbook.tables.incremental.template import SEPARATORS, Places, Spans, Template

__all__ = ["Read", "learn_templates"]

NUMBER = re.compile(rb"\d+(\.\d+)?")
MAX_SINGLE = 64  # a line with more numbers is not tested number by number

Read = Callable[[Sequence[bytes]], State | None]
"""Returns the values for these lines, or None if they change the shape of the text."""
Number = Callable[[int], int]


def learn_templates(texts: Sequence[bytes], read: Read) -> list[Template | None]:
    """A template for each of these lines; None for lines that cannot be read number by number.

    Lines are tested together, because a test may have to parse the whole text; if that fails, by halves.
    """
    learning = _Learning(texts, read)
    groups = [[number for number, line in enumerate(learning.lines) if line.free]]
    found: dict[int, Template] = {}
    while groups:
        group = groups.pop()
        templates = learning.templates(group) if group else {}
        if templates is None and len(group) > 1:
            groups += [group[: len(group) // 2], group[len(group) // 2 :]]
        elif templates is None:
            found.update(learning.without_names(group[0]) or {})
        else:
            found.update(templates)
    return [found.get(number) for number in range(len(texts))]


@dataclasses.dataclass
class _Line:
    """A line, its words, the indices of those that are numbers, and the number of words in the lines before it."""

    text: bytes
    spans: Spans
    free: list[int]
    before: int

    def with_numbers(self, number: Number) -> bytes:
        """The line with other numbers; a number with a fraction gets another fraction."""
        pieces, done = [], 0
        for index in self.free:
            first, last = self.spans[index]
            fraction = b".25" if b"." in self.text[first:last] else b""
            pieces += [self.text[done:first], b"%d" % number(self.before + index), fraction]
            done = last
        return b"".join([*pieces, self.text[done:]])


class _Learning:
    def __init__(self, texts: Sequence[bytes], read: Read) -> None:
        self.lines: list[_Line] = []
        words = 0
        for text in texts:
            spans = [found.span() for found in re.finditer(rb"\S+", text.translate(SEPARATORS))]
            free = [index for index, (a, b) in enumerate(spans) if NUMBER.fullmatch(text, a, b)]
            self.lines.append(_Line(text, spans, free, words))
            words += len(spans)
        self._texts, self._read, self._base = list(texts), read, read(texts)

    def templates(self, group: list[int]) -> dict[int, Template] | None:
        """Templates for these lines if they agree with the parser on small, large and missing values, else None."""
        places = self._places(group)
        if places is None:
            return None
        lines = {number: self.lines[number] for number in group}
        found = {number: Template(line.text, line.spans, line.free, places[number]) for number, line in lines.items()}
        shorter = list(self._texts)
        for number, line in lines.items():
            text = line.text[: line.spans[line.free[-1]][0]]
            if found[number].fits(text):  # the template allows fewer unused numbers at the end
                shorter[number] = text
        numbers = [self._replace_numbers(group, how) for how in (lambda _: 0, lambda _: 1, lambda i: 10**15 + i)]
        trials = [self._texts, *numbers, *([shorter] if shorter != self._texts else [])]
        return found if all(self._agrees(found, texts) for texts in trials) else None

    def without_names(self, number: int) -> dict[int, Template] | None:
        """The same for one line in which some numbers belong to a name, such as a device's, and stay fixed."""
        line = self.lines[number]
        numbers = line.free if len(line.free) <= MAX_SINGLE else []
        free = []
        for index in numbers:
            line.free = [index]
            free += [index] if self._places([number]) is not None else []
        line.free = free
        return self.templates([number]) if free else None

    def _places(self, group: list[int]) -> dict[int, Places] | None:
        """The positions of each line's numbers among the values; None if the numbers change anything else."""
        probe = self._replace_numbers(group, lambda number: 7_000_003 + 11 * number)
        base, found = self._base, self._read(probe)
        if base is None or found is None or found.objects != base.objects:
            return None
        by_integer: dict[int, tuple[int, int]] = {}
        by_float: dict[float, tuple[int, int]] = {}
        for number in group:
            words = probe[number].translate(SEPARATORS).split()
            for index in self.lines[number].free:
                by_float[float(words[index])] = number, index
                if words[index].isdigit():
                    by_integer[int(words[index])] = number, index
        places: dict[int, Places] = {number: [] for number in group}
        try:
            for place, (before, after) in enumerate(zip(base.integers, found.integers, strict=True)):
                if before != after:
                    number, index = by_integer[after]
                    places[number].append((index, "q", place))
            for place, (old, new) in enumerate(zip(base.floats, found.floats, strict=True)):
                if old != new:
                    number, index = by_float[new]
                    places[number].append((index, "d", place))
        except KeyError:
            return None
        return places

    def _replace_numbers(self, group: list[int], how: Number) -> list[bytes]:
        texts = list(self._texts)
        for number in group:
            texts[number] = self.lines[number].with_numbers(how)
        return texts

    def _agrees(self, templates: dict[int, Template], texts: Sequence[bytes]) -> bool:
        if self._base is None:
            return False
        state = self._base.copy()
        return all(one.apply(texts[n], state) for n, one in templates.items()) and state == self._read(texts)
