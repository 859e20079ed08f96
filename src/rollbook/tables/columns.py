"""Columns made from layouts: one block of a table per host and source, sorted by key and time."""

from __future__ import annotations

import bisect
import dataclasses
import functools
from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from rollbook.sources.base import Source, compare_of
from rollbook.tables.incremental.layout import Layout, Row, key_fields

__all__ = ["RESERVED", "WIDTHS", "Block", "Column", "HostColumns", "Merge", "Origin", "block_of"]

Cells: TypeAlias = "array[Any] | list[Any]"
"""An array of integers or floats, or a list of any values including None."""
WIDTHS = ("", "q", "d", "o")  # kinds of columns, the narrowest first: no values yet, integers, floats, anything
RESERVED = frozenset(("host", "ts", "mono", "seconds"))
"""Columns that every table has, or that its rates have, besides those of the source."""
HOST_COLUMNS = 1024  # from names in dicts, per host and table; the largest known source has 400


class Column:
    """A column of the narrowest kind that holds all its values: `q` integers, `d` floats, `o` anything.

    `nulls` are runs of nulls: first row, count.
    """

    def __init__(self) -> None:
        self.kind, self.size = "", 0
        self.data: Cells = []
        self.nulls: list[tuple[int, int]] = []

    def add(self, cells: Cells) -> None:
        """Append cells; the column takes ownership of them."""
        gaps = list[tuple[int, int]]()
        if isinstance(cells, list):
            gaps = [(self.size + at, 1) for at, value in enumerate(cells) if value is None]
            cells = cells if self.kind == "o" else _numbers(cells)
        kind = cells.typecode if isinstance(cells, array) else "o"
        if not self.size:
            self.kind, self.data = kind, cells
        else:
            self.widen(max(self.kind, kind, key=WIDTHS.index))
            self.data.extend(cells)
        self.nulls += gaps  # after `widen`, which must not apply them to earlier cells
        self.size += len(cells)

    def add_nulls(self, count: int) -> None:
        """Append nulls."""
        self.nulls.append((self.size, count))
        self.size += count
        if self.kind:
            self.data.extend(_filler(self.kind, count))

    def widen(self, kind: str) -> None:
        """Change to a wider kind."""
        if kind != self.kind:
            if not self.kind:
                self.data = _filler(kind, self.size)
            else:
                self.data = self._as_list() if kind == "o" else array("d", self.data)
            self.kind = kind

    def _as_list(self) -> list[Any]:
        """The numbers as a list, with None for nulls."""
        cells = list(self.data)
        for first, count in self.nulls:
            cells[first : first + count] = [None] * count
        return cells


def _numbers(cells: list[Any]) -> Cells:
    """A list of numbers and None as an array; other lists unchanged."""
    kinds = set(map(type, cells)) - {type(None)}
    if not (kinds <= {int} or kinds == {float}):
        return cells
    try:
        return array("d" if float in kinds else "q", [0 if value is None else value for value in cells])
    except OverflowError:
        return cells


def _filler(kind: str, count: int) -> Cells:
    return [None] * count if kind == "o" else array(kind, bytes(8 * count))


@dataclasses.dataclass(frozen=True)
class Origin:
    """The origin of a column: the field of the row, and for merged gauges `min` or `max`."""

    field: int
    part: str = ""


class Merge:
    """Which adjacent samples are merged: those of one connection within one step of the collector's clock.

    Of counters, and of everything else that is not a gauge, the last value is kept, so that totals stay exact; of
    gauges the mean, minimum and maximum. The time is that of the last sample. A host's first sample is never merged,
    because totals are counted from it. A group never extends past the first sample after a mark, which ends a phase.
    """

    def __init__(self, origin: int, step: int, marks: Sequence[int] = ()) -> None:
        self.origin, self.step, self._marks = origin, step, sorted(marks)

    def ends(self, layouts: Sequence[Layout], first: int) -> list[int]:
        """The end of each group, as an index into the samples of all layouts together.

        `first` is the time of the host's first sample.
        """
        groups: list[tuple[int, int, bool, int]] = []
        times = [(layout.connection, ts) for layout in layouts for ts in layout.ts]
        for (_, before), (connection, ts) in zip(times[:1] + times, times, strict=False):
            phase = bisect.bisect_right(self._marks, before)
            groups.append((connection, (ts - self.origin) // self.step, ts <= first, phase))
        return [at for at in range(1, len(groups) + 1) if at == len(groups) or groups[at - 1] != groups[at]]


class HostColumns:
    """The columns that one host has added to one table by names in its dicts.

    There is a limit, so that a host that invents names cannot take the columns of other hosts.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()

    def admits(self, name: str) -> bool:
        """Whether a column is within the limit; counts it if it is new."""
        if name in self._names:
            return True
        if len(self._names) >= HOST_COLUMNS:
            return False
        self._names.add(name)
        return True


class Block:
    """Rows of one host in one table: `columns` by name, and the origin of each.

    `incomplete` is the number of samples without some of their columns, because the host has too many.
    """

    def __init__(self, source: Source, host: str, admitted: HostColumns) -> None:
        self._admitted, self.incomplete = admitted, 0
        self.source, self.host = source, host
        self.ts, self.mono = array("q"), array("q")
        self.columns: dict[str, Column] = {}
        self.origins: dict[str, Origin] = {}
        fields = source.row_type.__struct_fields__
        self._keys = [self._column(fields[field], Origin(field)) for field in key_fields(source)]

    @property
    def values(self) -> int:
        """The number of values."""
        return len(self.ts) * (2 + len(self.columns))

    def add(self, key: Any, parts: list[tuple[Layout, Row]], ends: list[int] | None) -> None:
        """Add all samples of one row, merged into groups with these ends."""
        layouts = [layout for layout, _ in parts]
        start, counts = len(self.ts), [len(layout) for layout in layouts]
        self.ts.extend(_last(_joined([layout.ts for layout in layouts], counts), ends))
        self.mono.extend(_last(_joined([layout.mono for layout in layouts], counts), ends))
        rows = len(self.ts) - start
        for column, value in zip(self._keys, key, strict=True):
            column.add([value] * rows)
        found: dict[tuple[str, Origin], list[Cells | None]] = {}
        for number, (layout, row) in enumerate(parts):
            for name, origin, cells in _cells(self.source, layout, row):
                if _columns_by_name(self.source)[origin.field] and not self._admitted.admits(name):
                    self.incomplete = max(self.incomplete, rows)
                    continue
                found.setdefault((name, origin), [None] * len(parts))[number] = cells
        for (name, origin), pieces in found.items():
            cells = _joined(pieces, counts)
            if ends is not None and _modes(self.source)[origin.field] == "gauge":
                mean, minimum, maximum = _mean_min_max(cells, ends)
                self._fill(self._column(name, origin), start, mean)
                self._fill(self._column(f"{name}_min", Origin(origin.field, "min")), start, minimum)
                self._fill(self._column(f"{name}_max", Origin(origin.field, "max")), start, maximum)
            else:
                self._fill(self._column(name, origin), start, _last(cells, ends))
        for column in self.columns.values():
            self._fill(column, start + rows, [])

    def _column(self, name: str, origin: Origin) -> Column:
        if name not in self.columns:
            self.columns[name], self.origins[name] = Column(), origin
        return self.columns[name]

    @staticmethod
    def _fill(column: Column, size: int, cells: Cells) -> None:
        """Append cells at row `size`; missing rows before it become null."""
        if column.size < size:
            column.add_nulls(size - column.size)
        if len(cells):
            column.add(cells)


def block_of(
    source: Source,
    host: str,
    layouts: list[Layout],
    merge: Merge | None,
    *,
    first: int,
    admitted: HostColumns,
) -> Block | None:
    """The rows of one host, sorted by key and time; None if there are none. `first` is the time of its first sample.

    `admitted` are the columns of the host in blocks before this one.
    """
    by_key: dict[Any, list[tuple[Layout, Row]]] = {}
    for layout in layouts:
        for row in layout.rows if len(layout) else ():
            by_key.setdefault(row.key, []).append((layout, row))
    block, ends_of = Block(source, host, admitted), dict[tuple[int, ...], list[int]]()
    for key in sorted(by_key, key=lambda key: [(part is not None, part) for part in key]):
        parts, ends = by_key[key], None
        if merge is not None:
            layout_ids = tuple(id(layout) for layout, _ in parts)
            if layout_ids not in ends_of:
                ends_of[layout_ids] = merge.ends([layout for layout, _ in parts], first)
            ends = ends_of[layout_ids]
        block.add(key, parts, ends)
    return block if by_key else None


def _cells(source: Source, layout: Layout, row: Row) -> list[tuple[str, Origin, Cells]]:
    """The columns of one row that have values: name, origin, and the value of each sample."""
    fields, found = source.row_type.__struct_fields__, list[tuple[str, Origin, Cells]]()
    integers, floats, count = len(layout.current.integers), len(layout.current.floats), len(layout)

    def column(kind: str, place: int) -> Cells:
        if kind == "q":
            return layout.integers[place::integers]
        return layout.floats[place::floats] if kind == "d" else _expand(layout.runs[place], count)

    for kind, runs in (("q", row.integers), ("d", row.floats)):
        for first, last, place in runs:
            found += [(fields[f], Origin(f), column(kind, place + f - first)) for f in range(first, last)]
    found += [(fields[field], Origin(field), column("o", place)) for field, place in row.objects]
    for field, kind, places in row.dicts:
        origin = Origin(field)
        found += [(_column_name(source, field, name), origin, column(kind, place)) for name, place in places.items()]
    return found


def _expand(runs: list[tuple[int, Any]], count: int) -> list[Any]:
    """One value per sample from runs of equal values."""
    cells: list[Any] = []
    for (_, value), (end, _) in zip(runs, [*runs[1:], (count, None)], strict=True):
        cells += [value] * (end - len(cells))
    return cells


def _joined(pieces: Sequence[Cells | None], counts: list[int]) -> Cells:
    """The pieces concatenated; missing ones are filled with None."""
    if len(pieces) == 1 and pieces[0] is not None:
        return pieces[0]
    kinds = {piece.typecode if isinstance(piece, array) else "o" for piece in pieces}
    joined: Cells = array(kinds.pop()) if kinds in ({"q"}, {"d"}) else []
    for piece, count in zip(pieces, counts, strict=True):
        joined.extend([None] * count if piece is None else piece)
    return joined


def _last(cells: Cells, ends: list[int] | None) -> Cells:
    """The last value of each group; all values if nothing is merged."""
    if ends is None:
        return cells
    kept = [cells[end - 1] for end in ends]
    return array(cells.typecode, kept) if isinstance(cells, array) else kept


def _mean_min_max(cells: Cells, ends: list[int]) -> tuple[Cells, Cells, Cells]:
    """Mean, minimum and maximum of each group; None for a group without values."""
    groups = [cells[first:last] for first, last in zip([0, *ends], ends, strict=False)]
    if isinstance(cells, list):
        groups = [[value for value in group if value is not None] for group in groups]

    def each(aggregate: Callable[[Any], Any]) -> Cells:
        return [aggregate(group) if group else None for group in groups]

    return each(lambda group: sum(group) / len(group)), each(min), each(max)


@functools.cache
def _modes(source: Source) -> list[str]:
    return [how.mode for how in compare_of(source.row_type).values()]


@functools.cache
def _columns_by_name(source: Source) -> list[bool]:
    """For each field, whether it is a dict with columns by name."""
    return [how.columns for how in compare_of(source.row_type).values()]


@functools.lru_cache(maxsize=65536)
def _column_name(source: Source, field: int, name: str) -> str:
    """The column for a name in a dict: the name, prefixed with the field if that name is taken."""
    fields, name = source.row_type.__struct_fields__, name.replace("\0", "\\0")  # not allowed in SQL names
    taken = {"", *RESERVED, *(other.lower() for other in fields)}
    return f"{fields[field]}.{name}" if name.lower() in taken else name
