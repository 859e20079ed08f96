"""The position of each value of a source's text in arrays of numbers, and the arrays themselves.

As long as the text keeps its shape (same rows, same names, same kinds of value) every sample is one copy of the
current values. Columns are extracted by stride afterwards.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from array import array
from typing import Any

import msgspec

from rollbook.sources.base import Source, compare_of

__all__ = ["Layout", "NewShape", "Row", "State", "key_fields"]

Key = tuple[Any, ...]
Run = tuple[int, int, int]
"""First field, last field + 1, and the position of the first."""


class NewShape(Exception):
    """The values do not fit the layout."""


@dataclasses.dataclass(slots=True)
class State:
    """The values of one sample: 64-bit integers, floats, and everything else."""

    integers: array[int]
    floats: array[float]
    objects: list[Any]

    def copy(self) -> State:
        """A copy of the values."""
        return State(self.integers[:], self.floats[:], self.objects[:])


@dataclasses.dataclass(slots=True)
class Row:
    """The positions of the values of one row. Of a dict: its field, `q`, `d` or `o`, and the position of each name."""

    key: Key
    integers: list[Run] = dataclasses.field(default_factory=list)
    floats: list[Run] = dataclasses.field(default_factory=list)
    objects: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    nulls: list[int] = dataclasses.field(default_factory=list)
    dicts: list[tuple[int, str, dict[str, int]]] = dataclasses.field(default_factory=list)


class Layout:
    """The samples taken while the text had the shape of `rows`, on one connection of the host."""

    def __init__(self, source: Source, rows: list[Any], connection: int) -> None:
        self.connection = connection
        self.ts, self.mono = array("q"), array("q")
        self.integers, self.floats = array("q"), array("d")
        self.current = State(array("q"), array("d"), [])
        self._keys = key_fields(source)
        self.rows = [self._row(facts) for facts in rows]
        self._by_key = {row.key: row for row in self.rows}
        self.runs: list[list[tuple[int, Any]]] = [[] for _ in self.current.objects]  # first sample, value
        self._previous: list[Any] = [object()] * len(self.current.objects)
        self._objects_changed = True  # objects may differ from the latest runs

    def shape(self) -> Any:
        """Equal for layouts in which every value has the same position."""
        return tuple(
            (
                row.key,
                *(tuple(places) for places in (row.integers, row.floats, row.objects, row.nulls)),
                *((field, kind, tuple(places.items())) for field, kind, places in row.dicts),
            )
            for row in self.rows
        )

    @property
    def unique(self) -> bool:
        """Whether no two rows have the same key."""
        return len(self._by_key) == len(self.rows)

    def __len__(self) -> int:
        return len(self.ts)

    def append(self, ts: int, mono: int) -> None:
        """Add a sample with the current values."""
        current = self.current
        if self._objects_changed:
            self._objects_changed = False
            for runs, before, value in zip(self.runs, self._previous, current.objects, strict=True):
                if before != value:
                    runs.append((len(self.ts), value))
            self._previous = current.objects[:]
        self.ts.append(ts)
        self.mono.append(mono)
        self.integers.extend(current.integers)
        self.floats.extend(current.floats)

    def replace(self, rows: list[Any], state: State) -> None:
        """Store the rows of a full parse in the state; raises `NewShape` if they do not fit."""
        self._objects_changed = True
        if len(rows) != len(self.rows):
            raise NewShape
        for row, facts in zip(self.rows, rows, strict=True):
            values = msgspec.structs.astuple(facts)
            if tuple(values[field] for field in self._keys) != row.key or _has_other_names(row, values):
                raise NewShape
            _store(row, values, state)

    def update(self, rows: list[Any], state: State) -> set[Any]:
        """Store the rows of some lines in the state; returns their keys, or the names in their dicts."""
        found: set[Any] = set()
        self._objects_changed = True
        for facts in rows:
            values = msgspec.structs.astuple(facts)
            key = tuple(values[field] for field in self._keys)
            row = self._by_key.get(key)
            if row is None or (key and _has_other_names(row, values)):
                raise NewShape
            _store(row, values, state)
            if key:
                found.add(key)
            else:
                found.update(*[values[field] for field, _, _ in row.dicts])
        return found

    def _row(self, facts: Any) -> Row:
        values = msgspec.structs.astuple(facts)
        row, current = Row(tuple(values[field] for field in self._keys)), self.current
        for field, value in enumerate(values):
            if field in self._keys:
                continue
            kind = _kind(value)
            if kind == "q":
                _extend(row.integers, field, len(current.integers))
                current.integers.append(value)
            elif kind == "d":
                _extend(row.floats, field, len(current.floats))
                current.floats.append(value)
            elif isinstance(value, dict):
                row.dicts.append((field, *self._place_names(value)))
            elif value is None:
                row.nulls.append(field)
            else:
                row.objects.append((field, len(current.objects)))
                current.objects.append(value)
        return row

    def _place_names(self, values: dict[str, Any]) -> tuple[str, dict[str, int]]:
        kinds = {_kind(value) for value in values.values()}
        kind = kinds.pop() if len(kinds) == 1 else "o" if kinds else "q"
        origin: Any = {"q": self.current.integers, "d": self.current.floats, "o": self.current.objects}[kind]
        places = dict(zip(values, itertools.count(len(origin)), strict=False))
        origin.extend(values.values())
        return kind, places


def _store(row: Row, values: tuple[Any, ...], state: State) -> None:
    integers, floats = state.integers, state.floats
    try:
        for first, last, place in row.integers:
            integers[place : place + last - first] = array("q", values[first:last])
        for first, last, place in row.floats:
            floats[place : place + last - first] = array("d", values[first:last])
        for field, kind, places in row.dicts:
            origin: Any = integers if kind == "q" else floats if kind == "d" else state.objects
            for name, value in values[field].items():
                origin[places[name]] = value
    except (TypeError, OverflowError, KeyError):
        raise NewShape from None
    for field in row.nulls:
        if values[field] is not None:
            raise NewShape
    for field, place in row.objects:
        state.objects[place] = values[field]


def _has_other_names(row: Row, values: tuple[Any, ...]) -> bool:
    """Whether a dict has more or fewer names than in the layout."""
    return any(len(values[field]) != len(places) for field, _, places in row.dicts)


def _kind(value: Any) -> str:
    """`q` for a 64-bit integer, `d` for a float, `o` for anything else."""
    if type(value) is int:
        return "q" if -(1 << 63) <= value < 1 << 63 else "o"
    return "d" if type(value) is float else "o"


def _extend(runs: list[Run], field: int, place: int) -> None:
    """Add a field to the last run if it is adjacent, else start a run."""
    if runs and runs[-1][1] == field:
        first, _, start = runs[-1]
        runs[-1] = (first, field + 1, start)
    else:
        runs.append((field, field + 1, place))


@functools.cache
def key_fields(source: Source) -> tuple[int, ...]:
    """The fields that identify a row."""
    return tuple(index for index, how in enumerate(compare_of(source.row_type).values()) if how.mode == "key")
