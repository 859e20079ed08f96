"""The samples of one source of one host, parsed and kept as columns of numbers.

Between two beats only about one line in eight changes. Where a source declares that its lines stand for themselves,
only the lines that changed are parsed, by the source's own parser, and put over the values of the beat before; one
copy of all values is appended for each sample. A `Layout` says which value lies where; as long as the text keeps its
shape (same rows, same names, same kinds of value) the layout stays, otherwise a new one begins with a full parse.
"""

from __future__ import annotations

import functools
import itertools
import operator
from array import array
from typing import Any

import msgspec

from rollbook.collect.readings import READABLE, split_pages
from rollbook.errors import ParseError, ProtocolError
from rollbook.sources.base import Source, compare_of

__all__ = ["Layout", "Row", "Sheet"]

Key = tuple[Any, ...]


class _NewShape(Exception):
    """The text no longer fits the layout."""


class Row:
    """Where the values of one row lie: runs of whole numbers and of decimals, names in dicts, all else as objects."""

    __slots__ = ("decimals", "dicts", "key", "nulls", "objects", "wholes")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.wholes: list[tuple[int, int, int]] = []  # first field, last field + 1, place of the first
        self.decimals: list[tuple[int, int, int]] = []
        self.objects: list[tuple[int, int]] = []
        self.nulls: list[int] = []
        self.dicts: list[tuple[int, str, dict[str, int]]] = []  # field, kind, place by name


class Layout:
    """The samples taken while the text had one shape: current values, and a copy of them for each sample."""

    def __init__(self, source: Source, rows: list[Any], connection: int) -> None:
        self.connection = connection
        self.ts, self.mono = array("q"), array("q")
        self.wholes, self.decimals = array("q"), array("d")
        self.width = self.depth = 0
        self.objects: list[list[tuple[int, Any]]] = []  # per place: from which sample on, and the value
        self._now, self._now_decimals = array("q"), array("d")
        self._keys = key_fields(source)
        self.rows = [self._row(row) for row in rows]
        self._by_key = {row.key: row for row in self.rows}
        self.unique = len(self._by_key) == len(self.rows)
        self.width, self.depth = len(self._now), len(self._now_decimals)

    def _row(self, record: Any) -> Row:
        values = msgspec.structs.astuple(record)
        row = Row(tuple(values[field] for field in self._keys))
        for field, value in enumerate(values):
            if field in self._keys:
                continue
            kind = kind_of(value)
            if kind == "q":
                _extend(row.wholes, field, len(self._now))
                self._now.append(value)
            elif kind == "d":
                _extend(row.decimals, field, len(self._now_decimals))
                self._now_decimals.append(value)
            elif kind == "dict":
                row.dicts.append((field, *self._names(value)))
            elif value is None:
                row.nulls.append(field)
            else:
                row.objects.append((field, self._object(value)))
        return row

    def _object(self, value: Any) -> int:
        self.objects.append([(0, value)])
        return len(self.objects) - 1

    def _names(self, values: dict[str, Any]) -> tuple[str, dict[str, int]]:
        kinds = {kind_of(value) for value in values.values()}
        if kinds <= {"q"}:
            start = len(self._now)
            self._now.extend(values.values())
            return "q", dict(zip(values, itertools.count(start), strict=False))
        if kinds == {"d"}:
            start = len(self._now_decimals)
            self._now_decimals.extend(values.values())
            return "d", dict(zip(values, itertools.count(start), strict=False))
        return "o", {name: self._object(value) for name, value in values.items()}

    def __len__(self) -> int:
        return len(self.ts)

    def append(self, ts: int, mono: int) -> None:
        """One more sample, of the current values."""
        self.ts.append(ts)
        self.mono.append(mono)
        self.wholes.extend(self._now)
        self.decimals.extend(self._now_decimals)

    def replace(self, records: list[Any]) -> None:
        """Take the values of a full parse."""
        if len(records) != len(self.rows):
            raise _NewShape
        for row, record in zip(self.rows, records, strict=True):
            values = msgspec.structs.astuple(record)
            if tuple(values[field] for field in self._keys) != row.key or _grown(row, values):
                raise _NewShape
            self._put(row, values)

    def update(self, records: list[Any]) -> set[Any]:
        """Take the values of some lines; gives the names of what they touched, as `touched` does."""
        found: set[Any] = set()
        for record in records:
            values = msgspec.structs.astuple(record)
            key = tuple(values[field] for field in self._keys)
            row = self._by_key.get(key)
            if row is None or (key and _grown(row, values)):
                raise _NewShape
            self._put(row, values)
            if key:
                found.add(key)
            else:
                found.update(*[values[field] for field, _, _ in row.dicts])
        return found

    def _put(self, row: Row, values: tuple[Any, ...]) -> None:
        now, decimals = self._now, self._now_decimals
        try:
            for first, last, place in row.wholes:
                now[place : place + last - first] = array("q", values[first:last])
            for first, last, place in row.decimals:
                decimals[place : place + last - first] = array("d", values[first:last])
            for field, kind, places in row.dicts:
                if kind == "q":
                    for name, value in values[field].items():
                        now[places[name]] = value
                elif kind == "d":
                    for name, value in values[field].items():
                        decimals[places[name]] = value
                else:
                    for name, value in values[field].items():
                        self._put_object(places[name], value)
        except (TypeError, OverflowError, KeyError):
            raise _NewShape from None
        for field in row.nulls:
            if values[field] is not None:
                raise _NewShape
        for field, place in row.objects:
            self._put_object(place, values[field])

    def _put_object(self, place: int, value: Any) -> None:
        runs = self.objects[place]
        if runs[-1][1] != value:
            if runs[-1][0] == len(self.ts):
                runs.pop()
            runs.append((len(self.ts), value))


def _grown(row: Row, values: tuple[Any, ...]) -> bool:
    """Whether a dict has more or fewer names than the layout knows."""
    return any(len(values[field]) != len(places) for field, _, places in row.dicts)


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
        return sum(len(layout) * (layout.width + layout.depth + 2) for layout in self._layouts)

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
        if self._lines is not None and self._layout is not None and self._lines.changed(pages, self._layout):
            return
        records = records_of(self.source, {path: text_of(data) for path, data in pages.items()})
        try:
            if self._layout is None:
                raise _NewShape
            self._layout.replace(records)
        except _NewShape:
            self._layout = Layout(self.source, records, self._connection)
            self._layouts.append(self._layout)
        self._lines = None
        if self.source.lines is not None and len(pages) == 1 and self._layout.unique:
            self._lines = Lines.learnt(self.source, pages, records)


class Lines:
    """The lines of the text parsed last, and what each of them gives: its row, or its names."""

    def __init__(self, source: Source, path: str, lines: list[bytes]) -> None:
        assert source.lines is not None
        self._source, self._path, self._lines = source, path, lines
        prefixes = tuple(prefix.encode() for prefix in source.lines)
        self._steady = [index for index, line in enumerate(lines) if line.startswith(prefixes)] if prefixes else []
        self._owners: list[set[Any]] = []

    @classmethod
    def learnt(cls, source: Source, pages: dict[str, bytes], records: list[Any]) -> Lines | None:
        """Parse each line alone; None where that does not add up to the whole."""
        ((path, data),) = pages.items()
        self = cls(source, path, data.split(b"\n"))
        try:
            common = self._parse([])
            alone = [self._parse([index]) for index in range(len(self._lines))]
        except ParseError:
            return None
        base = touched(source, common)
        self._owners = [
            base if index in self._steady else touched(source, found) - base for index, found in enumerate(alone)
        ]
        apart = sum(len(owned) for owned in self._owners) - len(base) * max(0, len(self._steady) - 1)
        whole = touched(source, records)
        return self if apart == len(whole) and _joined(source, [common, *alone]) == _joined(source, [records]) else None

    def changed(self, pages: dict[str, bytes], layout: Layout) -> bool:
        """Bring the layout up to date from the lines that changed; False where the whole must be parsed."""
        data = pages.get(self._path)
        if data is None or len(pages) > 1:
            return False
        lines = data.split(b"\n")
        if len(lines) != len(self._lines):
            return False
        changed = list(itertools.compress(itertools.count(), map(operator.ne, lines, self._lines)))
        if changed:
            self._lines = lines
            try:
                found = layout.update(self._parse(changed))
            except (ParseError, _NewShape):
                return False
            owned = [self._owners[index] for index in changed]
            if found != set().union(*owned, *(self._owners[index] for index in self._steady[:1])):
                return False
        return True

    def _parse(self, indices: list[int]) -> list[Any]:
        chosen = sorted({*indices, *self._steady}) if self._steady else indices
        lines = self._lines
        return records_of(self._source, {self._path: text_of(b"\n".join([lines[index] for index in chosen]))})


def text_of(data: bytes) -> str:
    """Text as readings have it."""
    return data.decode("utf-8", "backslashreplace")


def records_of(source: Source, pages: dict[str, str]) -> list[Any]:
    """The rows of a table, or the one record."""
    found = source.parse(pages)
    return found if source.table else [found]


@functools.cache
def key_fields(source: Source) -> tuple[int, ...]:
    """Which fields of the record name the row."""
    notes = compare_of(source.record)
    return tuple(index for index, name in enumerate(source.record.__struct_fields__) if notes[name].mode == "key")


def touched(source: Source, records: list[Any]) -> set[Any]:
    """What some records speak of: the keys of rows, or the names in the dicts of the one record."""
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


def kind_of(value: Any) -> str:
    """`q` a number of 64 bits, `d` a decimal, `dict`, or `o` anything else."""
    if type(value) is int:
        return "q" if -(1 << 63) <= value < 1 << 63 else "o"
    return "d" if type(value) is float else "dict" if type(value) is dict else "o"


def _extend(runs: list[tuple[int, int, int]], field: int, place: int) -> None:
    """Add a field to the last run if it follows it, else begin a run."""
    if runs and runs[-1][1] == field:
        first, _, start = runs[-1]
        runs[-1] = (first, field + 1, start)
    else:
        runs.append((field, field + 1, place))
