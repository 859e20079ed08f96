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
from collections.abc import Iterator
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
            if tuple(values[field] for field in self._keys) != row.key or any(
                len(values[field]) != len(places) for field, _, places in row.dicts
            ):
                raise _NewShape
            self._put(row, values)

    def update(self, records: list[Any]) -> set[Any]:
        """Take the values of some lines; gives the names of what they touched, as `touched` does."""
        found: set[Any] = set()
        for record in records:
            values = msgspec.structs.astuple(record)
            key = tuple(values[field] for field in self._keys)
            row = self._by_key.get(key)
            if row is None:
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


class Sheet:
    """Takes the bodies of one source of one host, one after the other; `layouts` has what came of them.

    `failed` counts samples that the parser refused; they, and those without a readable page, make no row.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.layouts, self.failed = source, list[Layout](), 0
        self._layout: Layout | None = None
        self._connection = 0
        self._lines: list[bytes] = []
        self._path, self._owners = "", list[set[Any]]()
        self._steady: list[int] = []

    def __len__(self) -> int:
        """How many values are held."""
        return sum(len(layout) * (layout.width + layout.depth + 2) for layout in self.layouts)

    def take(self) -> list[Layout]:
        """Hand over what is there; what comes next begins anew."""
        layouts, self.layouts = self.layouts, []
        if self._layout is not None:
            self._connection = -1  # the next sample needs a layout of its own
        return layouts

    def add(self, ts: int, mono: int, connection: int, body: bytes | None) -> None:
        """One more sample; without a body, the one before again."""
        if connection != self._connection:
            self._connection = connection
            if body is None and self._layout is not None:
                body = self._body
            self._layout, self._lines = None, []
        if body is not None:
            self._body = body
            try:
                self._read(body)
            except (ParseError, ProtocolError):
                self._layout, self._lines = None, []
                self.failed += 1
                return
        if self._layout is not None:
            self._layout.append(ts, mono)
        elif body is None and self._failing:
            self.failed += 1
