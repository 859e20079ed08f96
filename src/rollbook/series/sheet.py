"""The samples of one source of one host, parsed and kept as rows of numbers.

Between two beats only about one line in eight changes. Where a source declares that its numbers are plain, only
the lines that changed are read, by templates learnt from the source's own parser; where its lines also stand for
themselves, a line that a template cannot read is parsed without the others. Everything else is parsed in full when it
changed.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import msgspec

from rollbook.collect.readings import READABLE, split_pages
from rollbook.errors import ParseError, ProtocolError
from rollbook.series.layout import Layout, NewShape, State, key_fields
from rollbook.series.template import Read, Template
from rollbook.sources.base import Source

__all__ = ["Sheet"]

TRIES = 2  # at learning how a line is read, as long as the text keeps its shape


class Sheet:
    """Takes the bodies of one source of one host, one after the other; `take` gives what came of them.

    `failed` counts samples that the parser refused. They make no row, nor do those without a readable page.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.failed = source, 0
        self._layouts: list[Layout] = []
        self._layout: Layout | None = None
        self._lines: Lines | None = None
        self._connection, self._body, self._refused = -1, b"", False

    def __len__(self) -> int:
        """How many values are held."""
        return sum(len(layout.wholes) + len(layout.decimals) + 2 * len(layout) for layout in self._layouts)

    def take(self) -> list[Layout]:
        """Hand over what is there; the next sample begins a layout of its own."""
        layouts, self._layouts, self._layout, self._connection = self._layouts, [], None, -1
        return layouts

    def add(self, ts: int, mono: int, connection: int, body: bytes | None) -> None:
        """One more sample; without a body, the one before again."""
        if connection != self._connection:
            self._connection, self._layout, self._lines = connection, None, None
            body = self._body if body is None else body
        if body is not None:
            self._body = body
            try:
                self._read(body)
                self._refused = False
            except (ParseError, ProtocolError):
                self._layout, self._lines, self._refused = None, None, True
        self.failed += self._refused
        if self._layout is not None:
            self._layout.append(ts, mono)

    def _read(self, body: bytes) -> None:
        pages = {path: data for path, status, data in split_pages(body) if status in READABLE}
        if not pages:
            self._layout = self._lines = None
            return
        if self._lines is not None and self._lines.changed(pages):
            return
        records = records_of(self.source, pages)
        layout = self._layout
        try:
            if layout is not None:
                layout.replace(records, layout.now)
        except NewShape:
            layout = None
        if layout is None:
            layout = self._layout = Layout(self.source, records, self._connection)
            self._layouts.append(layout)
        self._lines = Lines.of(self.source, pages, records, layout)


class Lines:
    """The lines of the text read last, and how each of them is read again when it has changed."""

    def __init__(self, source: Source, pages: dict[str, bytes], layout: Layout) -> None:
        self._source, self._pages, self._layout = source, pages, layout
        self._lines = [data.split(b"\n") for data in pages.values()]
        self._templates: dict[tuple[int, int], Template | None] = {}
        self._tries: dict[tuple[int, int], int] = {}

    @classmethod
    def of(cls, source: Source, pages: dict[str, bytes], records: list[Any], layout: Layout) -> Lines | None:
        """For a source whose text can be read by lines, None for others."""
        if source.lines is not None and layout.unique and len(pages) == 1:
            alone = LinesAlone(source, pages, layout)
            if alone.add_up(records):
                return alone
        return cls(source, pages, layout) if source.plain_numbers else None

    def changed(self, pages: dict[str, bytes]) -> bool:
        """Bring the layout up to date from the lines that changed; False where the whole must be parsed again."""
        if list(pages) != list(self._pages):
            return False
        state, hard = self._layout.now, []
        for page, (data, before) in enumerate(zip(pages.values(), self._lines, strict=True)):
            lines = data.split(b"\n")
            if len(lines) != len(before):
                return False
            self._lines[page] = lines
            for index in itertools.compress(itertools.count(), map(operator.ne, lines, before)):
                template = self._templates.get((page, index))
                if template is None or not template.apply(lines[index], state):
                    hard.append((page, index))
        self._pages = pages
        if not hard:
            return True
        try:
            if not self._parse(hard, state):
                return False
        except (ParseError, NewShape):
            return False
        for place in hard:
            tries = self._tries[place] = self._tries.get(place, 0) + 1
            if tries <= TRIES:
                self._templates[place] = Template.learnt(self._lines[place[0]][place[1]], self._trial(place))
        return True

    def _parse(self, places: list[tuple[int, int]], state: State) -> bool:
        """Have the source's parser read these lines, here together with all the others."""
        del places
        self._layout.replace(records_of(self._source, self._pages), state)
        return True

    def _trial(self, place: tuple[int, int]) -> Read:
        page, index = place

        def read(line: bytes) -> State | None:
            lines, pages = self._lines[page], self._pages
            kept, state = lines[index], self._layout.now.copy()
            lines[index] = line
            self._pages = {
                path: b"\n".join(lines) if number == page else data for number, (path, data) in enumerate(pages.items())
            }
            try:
                return state if self._parse([place], state) else None
            except (ParseError, NewShape):
                return None
            finally:
                lines[index], self._pages = kept, pages

        return read


class LinesAlone(Lines):
    """Lines that stand for themselves: some of them are parsed without the others."""

    def __init__(self, source: Source, pages: dict[str, bytes], layout: Layout) -> None:
        super().__init__(source, pages, layout)
        (self._path,) = pages
        prefixes = tuple(prefix.encode() for prefix in source.lines or ())
        (lines,) = self._lines
        self._steady = [index for index, line in enumerate(lines) if prefixes and line.startswith(prefixes)]
        self._owners: list[set[Any]] = []

    def add_up(self, records: list[Any]) -> bool:
        """Parse each line alone, and learn which rows or names it gives; False if that is not the whole."""
        source, (lines,) = self._source, self._lines
        try:
            common = self._records([])
            alone = [self._records([index]) for index in range(len(lines))]
        except ParseError:
            return False
        base = _touched(source, common)
        self._owners = [
            base if index in self._steady else _touched(source, found) - base for index, found in enumerate(alone)
        ]
        apart = sum(len(owned) for owned in self._owners) - len(base) * max(0, len(self._steady) - 1)
        whole = _joined(source, [common, *alone]) == _joined(source, [records])
        return whole and apart == len(_touched(source, records))

    def _parse(self, places: list[tuple[int, int]], state: State) -> bool:
        indices = [index for _, index in places]
        found = self._layout.update(self._records(indices), state)
        return found == set().union(*(self._owners[index] for index in (*indices, *self._steady[:1])))

    def _records(self, indices: list[int]) -> list[Any]:
        (lines,) = self._lines
        chosen = sorted({*indices, *self._steady}) if self._steady else indices
        return records_of(self._source, {self._path: b"\n".join([lines[index] for index in chosen])})


def records_of(source: Source, pages: dict[str, bytes]) -> list[Any]:
    """The rows of a table, or the one record; the text is decoded as readings do it."""
    found = source.parse({path: data.decode("utf-8", "backslashreplace") for path, data in pages.items()})
    return found if source.table else [found]


def _touched(source: Source, records: list[Any]) -> set[Any]:
    """What records speak of: the keys of rows, or the names in the dicts of the one record."""
    found: set[Any] = set()
    keys = key_fields(source)
    for record in records:
        values = msgspec.structs.astuple(record)
        if keys:
            found.add(tuple(values[field] for field in keys))
        else:
            found.update(*(value for value in values if isinstance(value, dict)))
    return found


def _joined(source: Source, parses: list[list[Any]]) -> Any:
    """Parses of parts put together: rows by key, or each field of the one record, its dicts filled up."""
    keys = key_fields(source)
    if keys:
        return {tuple(msgspec.structs.astuple(r)[k] for k in keys): r for records in parses for r in records}
    fields: dict[str, Any] = {}
    for (record,) in parses:
        for name, value in msgspec.structs.asdict(record).items():
            fields[name] = {**fields.get(name, {}), **value} if isinstance(value, dict) else value
    return fields
