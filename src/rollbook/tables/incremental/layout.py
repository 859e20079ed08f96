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
    """The values of one sample: integers, decimals, and everything else."""

    wholes: array[int]
    decimals: array[float]
    objects: list[Any]

    def copy(self) -> State:
        """A copy of the values."""
        return State(self.wholes[:], self.decimals[:], self.objects[:])


@dataclasses.dataclass(slots=True)
class Row:
    """The positions of the values of one row. Of a dict: its field, `q`, `d` or `o`, and the position of each name."""

    key: Key
    wholes: list[Run] = dataclasses.field(default_factory=list)
    decimals: list[Run] = dataclasses.field(default_factory=list)
    objects: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    nulls: list[int] = dataclasses.field(default_factory=list)
    dicts: list[tuple[int, str, dict[str, int]]] = dataclasses.field(default_factory=list)


class Layout:
    """The samples taken while the text had the shape of `rows`, on one connection of the host."""

    def __init__(self, source: Source, rows: list[Any], connection: int) -> None:
        self.connection = connection
        self.ts, self.mono = array("q"), array("q")
        self.wholes, self.decimals = array("q"), array("d")
        self.now = State(array("q"), array("d"), [])
        self._keys = key_fields(source)
        self.rows = [self._row(facts) for facts in rows]
        self._by_key = {row.key: row for row in self.rows}
        self.runs: list[list[tuple[int, Any]]] = [[] for _ in self.now.objects]  # first sample with the value, value
        self._noted: list[Any] = [object()] * len(self.now.objects)
        self._touched = True  # objects may differ from the latest runs

    def shape(self) -> Any:
        """Equal for layouts in which every value has the same position."""
        return tuple(
            (
                row.key,
                *(tuple(places) for places in (row.wholes, row.decimals, row.objects, row.nulls)),
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
        now = self.now
        if self._touched:
            self._touched = False
            for runs, before, value in zip(self.runs, self._noted, now.objects, strict=True):
                if before != value:
                    runs.append((len(self.ts), value))
            self._noted = now.objects[:]
        self.ts.append(ts)
        self.mono.append(mono)
        self.wholes.extend(now.wholes)
        self.decimals.extend(now.decimals)

    def replace(self, rows: list[Any], state: State) -> None:
        """Store the rows of a full parse in the state; raises `NewShape` if they do not fit."""
        self._touched = True
        if len(rows) != len(self.rows):
            raise NewShape
        for row, facts in zip(self.rows, rows, strict=True):
            values = msgspec.structs.astuple(facts)
            if tuple(values[field] for field in self._keys) != row.key or _grown(row, values):
                raise NewShape
            _put(row, values, state)

    def update(self, rows: list[Any], state: State) -> set[Any]:
        """Store the rows of some lines in the state; returns their keys, or the names in their dicts."""
        found: set[Any] = set()
        self._touched = True
        for facts in rows:
            values = msgspec.structs.astuple(facts)
            key = tuple(values[field] for field in self._keys)
            row = self._by_key.get(key)
            if row is None or (key and _grown(row, values)):
                raise NewShape
            _put(row, values, state)
            if key:
                found.add(key)
            else:
                found.update(*[values[field] for field, _, _ in row.dicts])
        return found

    def _row(self, facts: Any) -> Row:
        values = msgspec.structs.astuple(facts)
        row, now = Row(tuple(values[field] for field in self._keys)), self.now
        for field, value in enumerate(values):
            if field in self._keys:
                continue
            kind = _kind(value)
            if kind == "q":
                _extend(row.wholes, field, len(now.wholes))
                now.wholes.append(value)
            elif kind == "d":
                _extend(row.decimals, field, len(now.decimals))
                now.decimals.append(value)
            elif isinstance(value, dict):
                row.dicts.append((field, *self._names(value)))
            elif value is None:
                row.nulls.append(field)
            else:
                row.objects.append((field, len(now.objects)))
                now.objects.append(value)
        return row

    def _names(self, values: dict[str, Any]) -> tuple[str, dict[str, int]]:
        kinds = {_kind(value) for value in values.values()}
        kind = kinds.pop() if len(kinds) == 1 else "o" if kinds else "q"
        origin: Any = {"q": self.now.wholes, "d": self.now.decimals, "o": self.now.objects}[kind]
        places = dict(zip(values, itertools.count(len(origin)), strict=False))
        origin.extend(values.values())
        return kind, places


def _put(row: Row, values: tuple[Any, ...], state: State) -> None:
    wholes, decimals = state.wholes, state.decimals
    try:
        for first, last, place in row.wholes:
            wholes[place : place + last - first] = array("q", values[first:last])
        for first, last, place in row.decimals:
            decimals[place : place + last - first] = array("d", values[first:last])
        for field, kind, places in row.dicts:
            origin: Any = wholes if kind == "q" else decimals if kind == "d" else state.objects
            for name, value in values[field].items():
                origin[places[name]] = value
    except (TypeError, OverflowError, KeyError):
        raise NewShape from None
    for field in row.nulls:
        if values[field] is not None:
            raise NewShape
    for field, place in row.objects:
        state.objects[place] = values[field]


def _grown(row: Row, values: tuple[Any, ...]) -> bool:
    """Whether a dict has more or fewer names than the layout."""
    return any(len(values[field]) != len(places) for field, _, places in row.dicts)


def _kind(value: Any) -> str:
    """`q` for a 64-bit integer, `d` for a decimal, `o` for anything else."""
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
    notes = compare_of(source.row_type)
    return tuple(index for index, name in enumerate(source.row_type.__struct_fields__) if notes[name].mode == "key")
