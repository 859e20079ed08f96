"""Parsing only what changed.

Between two beats only about one line in eight changes. Where a source declares that its numbers are plain, only the
lines that changed are read, by templates learned from the source's own parser. Where each of its lines can also be
parsed alone, a line that no template fits is parsed without the others. What was learned applies to every text of the
same shape, whichever host it comes from.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import Source
from rollbook.tables.incremental.layout import Layout, NewShape, State, key_fields
from rollbook.tables.incremental.learning import Read, learn_templates
from rollbook.tables.incremental.template import Apply, Template, without_numbers

__all__ = ["Lines", "rows_of", "without_rejected_lines"]

TRIES = 2  # attempts to learn a template for a line
LEARNING = 16 << 20  # bytes of text parsed to learn one shape
MAX_STEADY = 64  # lines that all other lines depend on, such as headings
MAX_SHAPES = 512  # learned shapes kept
MAX_REJECTED = 64  # rejected lines of one text; with more, the whole text is rejected

Place = tuple[int, int]
"""Number of the page, number of the line."""


class LearnedShape:
    """What was learned about texts of one shape: templates by page and line, and the rows or names of each line."""

    def __init__(self, lines: list[list[bytes]]) -> None:
        self.templates: list[list[Template | None]] = [[None] * len(page) for page in lines]
        self.tries = [[0] * len(page) for page in lines]
        self.alone: list[set[Any]] | None = None
        self.parsed = 0  # bytes parsed to learn all this


_learned: dict[Any, LearnedShape] = {}


class Lines:
    """The lines of the latest text, and how each of them is read when it changes."""

    def __init__(self, source: Source, pages: dict[str, bytes], rows: list[Any], layout: Layout) -> None:
        self._source, self._pages, self._layout = source, pages, layout
        self._lines = [data.split(b"\n") for data in pages.values()]
        prefixes = tuple(prefix.encode() for prefix in source.lines or ())
        first = self._lines[0]
        self._steady = [index for index, line in enumerate(first) if prefixes and line.startswith(prefixes)]
        rest = tuple(tuple(map(without_numbers, page)) for page in self._lines)
        shape = (source.name, layout.shape(), tuple(pages), rest)
        if shape not in _learned:
            if len(_learned) >= MAX_SHAPES:
                del _learned[next(iter(_learned))]
            _learned[shape] = LearnedShape(self._lines)
            if source.lines is not None and layout.unique and len(pages) == 1 and len(self._steady) <= MAX_STEADY:
                _learned[shape].alone = self._split_by_line(rows)
        self._learned = learned = _learned[shape]
        self._templates, self._alone = learned.templates, learned.alone
        # The template that read each line last: it may be applied again without checking the values it does not set.
        self._last_applied: list[list[Apply | None]] = [[None] * len(page) for page in self._lines]
        self.given_up = False

    def update(self, pages: dict[str, bytes]) -> bool:
        """Update the layout from the lines that changed; False if the whole text must be parsed again."""
        if list(pages) != list(self._pages):
            return False
        state, unmatched = self._layout.current, list[Place]()
        for page, (data, old, before) in enumerate(zip(pages.values(), self._pages.values(), self._lines, strict=True)):
            if data == old:
                continue
            lines, again = data.split(b"\n"), self._last_applied[page]
            if len(lines) != len(before):
                return False
            self._lines[page] = lines
            for index in itertools.compress(itertools.count(), map(operator.ne, lines, before)):
                apply = again[index]
                if apply is not None and apply(lines[index], state):
                    continue
                template = self._templates[page][index]
                if template is not None and template.fits(before[index]) and template.apply(lines[index], state):
                    again[index] = template.apply
                elif without_numbers(lines[index]) != without_numbers(before[index]):
                    return False  # the text has another shape
                else:
                    unmatched.append((page, index))
        self._pages = pages
        return self._parse_unmatched(unmatched, state)

    def _parse_unmatched(self, unmatched: list[Place], state: State) -> bool:
        """Parse these lines with the source's parser and learn templates; False if they do not fit the layout."""
        if not unmatched:
            return True
        if self._alone is None and any(self._templates[page][index] for page, index in unmatched):
            # A fixed number of a template has changed: without lines that can be parsed alone, anything may differ.
            self.given_up = True
            return False
        try:
            if not self._parse(unmatched, state):
                return False
        except (ParseError, NewShape):
            return False
        learned, new = self._learned, list[Place]()
        for page, index in unmatched:
            self._last_applied[page][index] = None
            if learned.tries[page][index] < TRIES:
                learned.tries[page][index] += 1
                new.append((page, index))
        found = learn_templates([self._lines[page][index] for page, index in new], self._trial(new)) if new else []
        for (page, index), template in zip(new, found, strict=True):
            self._templates[page][index] = template
        return True

    def _parse(self, places: list[Place], state: State) -> bool:
        """Parse these lines; with all the others if lines cannot be parsed alone."""
        if self._alone is None:
            self._layout.replace(rows_of(self._source, self._pages), state)
            return True
        indices = [index for _, index in places]
        found = self._layout.update(self._rows_of_lines(indices), state)
        return found == set().union(*(self._alone[index] for index in (*indices, *self._steady[:1])))

    def _trial(self, places: list[Place]) -> Read:
        """A function that returns the values for other content of those lines; None after too much text was parsed."""
        size = sum(map(len, self._pages.values())) if self._alone is None else 0

        def read(lines: Sequence[bytes]) -> State | None:
            self._learned.parsed += size or sum(map(len, lines))
            if self._learned.parsed > LEARNING:
                return None
            kept, pages, state = [list(page) for page in self._lines], self._pages, self._layout.current.copy()
            for (page, index), line in zip(places, lines, strict=True):
                self._lines[page][index] = line
            self._pages = dict(zip(pages, map(b"\n".join, self._lines), strict=True))
            try:
                return state if self._parse(places, state) else None
            except (ParseError, NewShape):
                return None
            finally:
                self._lines, self._pages = kept, pages

        return read

    def _rows_of_lines(self, indices: list[int]) -> list[Any]:
        """The rows of some lines of the only page."""
        chosen = sorted({*indices, *self._steady}) if self._steady else indices
        text = b"\n".join([self._lines[0][index] for index in chosen])
        return rows_of(self._source, dict.fromkeys(self._pages, text))

    def _split_by_line(self, rows: list[Any]) -> list[set[Any]] | None:
        """The rows or names of each line parsed alone; None if they do not add up to the whole text or overlap."""
        source = self._source
        try:
            common = self._rows_of_lines([])
            alone = [self._rows_of_lines([index]) for index in range(len(self._lines[0]))]
        except ParseError:
            return None
        base = _keys_or_names(source, common)
        rows_or_names = [
            base if index in self._steady else _keys_or_names(source, one) - base for index, one in enumerate(alone)
        ]
        count = sum(len(owned) for index, owned in enumerate(rows_or_names) if index not in self._steady[1:])
        whole = _merged(source, [common, *alone]) == _merged(source, [rows])
        return rows_or_names if whole and count == len(_keys_or_names(source, rows)) else None


def rows_of(source: Source, pages: dict[str, bytes]) -> list[Any]:
    """The rows of a table, or the only row; text is decoded as in readings.

    If several rows have the same key, the last one counts, as for file systems mounted over each other.
    """
    found = source.parse({path: data.decode("utf-8", "backslashreplace") for path, data in pages.items()})
    if not source.is_table:
        return [found]
    return list({_key(source, row): row for row in found}.values()) if key_fields(source) else found


def without_rejected_lines(source: Source, pages: dict[str, bytes]) -> list[Any]:
    """The rows of the lines that the parser accepts, in a source whose lines can be parsed alone.

    Raises `ParseError` if lines cannot be parsed alone, or if more of them are rejected than a damaged text has.
    """
    if source.lines is None or len(pages) != 1:
        raise ParseError("its lines cannot be parsed alone")
    ((path, data),) = pages.items()
    lines, prefixes = data.split(b"\n"), tuple(prefix.encode() for prefix in source.lines)
    steady = {index for index, line in enumerate(lines) if prefixes and line.startswith(prefixes)}

    def parse(indices: set[int]) -> list[Any]:
        return rows_of(source, {path: b"\n".join([lines[index] for index in sorted(indices | steady)])})

    groups, rejected = [[index for index in range(len(lines)) if index not in steady]], set[int]()
    while groups:
        group = groups.pop()
        try:
            parse(set(group))
        except ParseError:
            if len(group) > 1:
                groups += [group[: len(group) // 2], group[len(group) // 2 :]]
            else:
                rejected.update(group)
            if len(rejected) > MAX_REJECTED or not group:
                raise
    return parse({index for index in range(len(lines)) if index not in rejected})


def _key(source: Source, row: Any) -> tuple[Any, ...]:
    values = msgspec.structs.astuple(row)
    return tuple(values[field] for field in key_fields(source))


def _keys_or_names(source: Source, rows: list[Any]) -> set[Any]:
    """The keys of the rows, or the names in the dicts of the only row."""
    found: set[Any] = set()
    keys = key_fields(source)
    for row in rows:
        values = msgspec.structs.astuple(row)
        if keys:
            found.add(tuple(values[field] for field in keys))
        else:
            found.update(*(value for value in values if isinstance(value, dict)))
    return found


def _merged(source: Source, parses: list[list[Any]]) -> Any:
    """The results of parsing parts, merged: rows by key, or the fields of the only row with merged dicts."""
    keys = key_fields(source)
    if keys:
        return {_key(source, row): row for rows in parses for row in rows}
    fields: dict[str, Any] = {}
    for (row,) in parses:
        for name, value in msgspec.structs.asdict(row).items():
            fields[name] = {**fields.get(name, {}), **value} if isinstance(value, dict) else value
    return fields
