"""Finding out how lines are read, by trying.

In a source that declares its numbers plain, lines that changed are parsed a few times with other numbers in them; where
each of them turns up among the values is where the numbers of later lines belong, as long as the rest of the line
stays the same. What does not turn out plainly is left to the source's parser.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from rollbook.tables.incremental.layout import State
from rollbook.tables.incremental.template import PARTING, Places, Spans, Template

__all__ = ["Read", "learnt"]

NUMBER = re.compile(rb"\d+(\.\d+)?")
MOST_SINGLE = 64  # numbers of a line that are tried one by one

Read = Callable[[Sequence[bytes]], State | None]
"""The values as they are when the lines read like that, or None where they then give something else."""
Number = Callable[[int], int]


def learnt(texts: Sequence[bytes], read: Read) -> list[Template | None]:
    """How each of these lines is read; None for those that are not read number by number.

    They are tried together, since a trial may have to parse all the text around them; where that fails, by halves.
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
    """A line, its words, the numbers among them that may change, and how many words there are before it."""

    text: bytes
    spans: Spans
    free: list[int]
    before: int

    def reading(self, number: Number) -> bytes:
        """The line with other numbers, decimals with a fraction."""
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
            spans = [found.span() for found in re.finditer(rb"\S+", text.translate(PARTING))]
            free = [index for index, (a, b) in enumerate(spans) if NUMBER.fullmatch(text, a, b)]
            self.lines.append(_Line(text, spans, free, words))
            words += len(spans)
        self._texts, self._read, self._base = list(texts), read, read(texts)

    def templates(self, group: list[int]) -> dict[int, Template] | None:
        """Templates for these lines, if they agree with the parser on small, large and no values."""
        places = self._places(group)
        if places is None:
            return None
        lines = {number: self.lines[number] for number in group}
        found = {number: Template(line.text, line.spans, line.free, places[number]) for number, line in lines.items()}
        shorter = list(self._texts)
        for number, line in lines.items():
            text = line.text[: line.spans[line.free[-1]][0]]
            if found[number].fits(text):  # numbers that are passed over may become fewer
                shorter[number] = text
        numbers = [self._with(group, how) for how in (lambda _: 0, lambda _: 1, lambda i: 10**15 + i)]
        trials = [self._texts, *numbers, *([shorter] if shorter != self._texts else [])]
        return found if all(self._agrees(found, texts) for texts in trials) else None

    def without_names(self, number: int) -> dict[int, Template] | None:
        """The same for one line some of whose numbers are part of a name, such as a device's: those stay."""
        line = self.lines[number]
        numbers = line.free if len(line.free) <= MOST_SINGLE else []
        free = []
        for index in numbers:
            line.free = [index]
            free += [index] if self._places([number]) is not None else []
        line.free = free
        return self.templates([number]) if free else None

    def _places(self, group: list[int]) -> dict[int, Places] | None:
        """Where the numbers of each line turn up among the values; None where they change anything else."""
        probe = self._with(group, lambda number: 7_000_003 + 11 * number)
        base, found = self._base, self._read(probe)
        if base is None or found is None or found.objects != base.objects:
            return None
        whole: dict[int, tuple[int, int]] = {}
        decimal: dict[float, tuple[int, int]] = {}
        for number in group:
            words = probe[number].translate(PARTING).split()
            for index in self.lines[number].free:
                decimal[float(words[index])] = number, index
                if words[index].isdigit():
                    whole[int(words[index])] = number, index
        places: dict[int, Places] = {number: [] for number in group}
        try:
            for place, (before, after) in enumerate(zip(base.wholes, found.wholes, strict=True)):
                if before != after:
                    number, index = whole[after]
                    places[number].append((index, "q", place))
            for place, (was, value) in enumerate(zip(base.decimals, found.decimals, strict=True)):
                if was != value:
                    number, index = decimal[value]
                    places[number].append((index, "d", place))
        except KeyError:
            return None
        return places

    def _with(self, group: list[int], how: Number) -> list[bytes]:
        texts = list(self._texts)
        for number in group:
            texts[number] = self.lines[number].reading(how)
        return texts

    def _agrees(self, templates: dict[int, Template], texts: Sequence[bytes]) -> bool:
        if self._base is None:
            return False
        state = self._base.copy()
        return all(one.apply(texts[n], state) for n, one in templates.items()) and state == self._read(texts)
