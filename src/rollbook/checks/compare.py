"""Differences between the hosts of one group, by the comparison that each field declares.

Values that all hosts share cost only an equality test, so that a thousand hosts take about a second.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollbook.checks.views import View, status_of
from rollbook.records.findings import Difference, Value
from rollbook.records.hosts import HostResult
from rollbook.sources.base import Compare, key_of, same, same_set

__all__ = ["differences", "duplicates", "in_band", "named_rows", "odd_hosts", "shared_value", "unique_values"]

Cells = Sequence[tuple[str, Any]]
"""One value, record or table per host, with the host's name."""


def differences(view: View, hosts: Sequence[HostResult]) -> Iterator[Difference]:
    """Every field of the view in which the hosts differ. Hosts on which the source was not read are left out."""
    if not view.compared:
        return
    cells = [(host.name, view.fact(host)) for host in hosts if status_of(host, view.source) != "unknown"]
    if not view.is_table:
        yield from _records(view, cells)
    elif view.identity:
        yield from _by_identity(view, cells)
    else:
        yield from _by_key(view, cells)


def _records(view: View, cells: Cells) -> Iterator[Difference]:
    present = [(name, fact) for name, fact in cells if fact is not None]
    if present and len(present) < len(cells):
        yield from _field(view.name, "", same(), [(name, None if fact is None else "present") for name, fact in cells])
    yield from _fields(view, "", present)


def _fields(view: View, row: str, cells: Cells) -> Iterator[Difference]:
    if _all_equal(cells):
        return
    for field, how in view.compared.items():
        values = [(name, getattr(record, field)) for name, record in cells]
        if _all_equal(values):
            continue
        if how.columns:
            for column in sorted({column for _, columns in values for column in columns}):
                found = [(name, columns.get(column)) for name, columns in values]
                yield from _field(f"{view.name}.{field}.{column}", row, how, found)
            continue
        if view.tallies:
            values = [(name, value if value is None else sorted(value)) for name, value in values]
        yield from _field(f"{view.name}.{field}", row, view.rows.get(row, how), values)


def _by_key(view: View, cells: Cells) -> Iterator[Difference]:
    tables = [(name, {key_of(row): row for row in rows}) for name, rows in cells]
    yield from _field(view.name, "", same_set(), [(name, sorted(table)) for name, table in tables])
    for key in dict.fromkeys(key for _, table in tables for key in table):
        yield from _fields(view, key, [(name, table[key]) for name, table in tables if key in table])


def _by_identity(view: View, cells: Cells) -> Iterator[Difference]:
    """First the number of devices per kind; then, among hosts with the usual devices, the settings of each kind."""
    tables = [(name, _kinds(view, rows)) for name, rows in cells]
    counts = [(name, {kind: len(rows) for kind, rows in table.items()}) for name, table in tables]
    odd: set[str] = set()
    for difference in _field(view.name, "", same(), counts):
        odd.update(odd_hosts(difference))
        yield difference
    usual = [(name, table) for name, table in tables if name not in odd]
    for kind in usual[0][1] if usual else ():
        for field, how in view.compared.items():
            values = [(name, shared_value(table[kind], field)) for name, table in usual]
            yield from _field(f"{view.name}.{field}", kind, how, values)


def named_rows(view: View, fact: Any) -> dict[str, list[Any]]:
    """The rows of a host by the name under which they are compared: their key or their kind, "" for a record."""
    if not view.is_table:
        return {"": [fact]}
    return _kinds(view, fact) if view.identity else {key_of(row): [row] for row in fact}


def _kinds(view: View, rows: Sequence[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        values = (getattr(row, field) for field in view.identity)
        found.setdefault(" ".join(str(value) for value in values if value is not None), []).append(row)
    return dict(sorted(found.items()))


def shared_value(rows: Sequence[Any], field: str) -> Any:
    """The common value of all rows of a kind; the sorted values if the rows differ."""
    first = getattr(rows[0], field)
    if all(getattr(row, field) == first for row in rows):
        return first
    return sorted({_hashable(getattr(row, field)) for row in rows}, key=str)


def _field(field: str, row: str, how: Compare, cells: Cells) -> Iterator[Difference]:
    if not _all_equal(cells):
        parts = _bands(how, cells) if how.mode == "band" else _parts(how, cells)
        if len(parts) > 1:
            yield Difference(field, parts, row, how.unit)


def _parts(how: Compare, cells: Cells) -> list[Value]:
    """Hosts by value, the most common value first."""
    parts: dict[Any, Value] = {}
    for name, value in cells:
        key = frozenset(value) if how.mode == "set" and value is not None else _hashable(value)
        parts.setdefault(key, Value(value, [])).hosts.append(name)
    return sorted(parts.values(), key=lambda part: -len(part.hosts))


def _bands(how: Compare, cells: Cells) -> list[Value]:
    """Hosts within the band share the median; other hosts are listed by value. The most common value is first."""
    numbers = [value for _, value in cells if isinstance(value, int | float)]
    if len(numbers) < len(cells):
        # Disks of one kind may have several sizes, and a size may be unknown: such values are compared exactly.
        return _parts(same(), cells)
    middle = statistics.median_low(numbers)
    inside = [name for name, value in cells if in_band(value, middle, how.tolerance)]
    outside = [(name, value) for name, value in cells if not in_band(value, middle, how.tolerance)]
    return sorted([Value(middle, inside), *_parts(how, outside)], key=lambda part: -len(part.hosts))


def in_band(value: float, middle: float, tolerance: float) -> bool:
    """Whether a number is within the fraction `tolerance` of `middle`."""
    return abs(value - middle) <= tolerance * abs(middle)


def odd_hosts(difference: Difference) -> list[str]:
    """The hosts without the majority value; all hosts if no value has a majority."""
    return [name for value in difference.values[bool(difference.most_common) :] for name in value.hosts]


def duplicates(view: View, hosts: Sequence[HostResult]) -> Iterator[Difference]:
    """Every unique value that several hosts have."""
    for field in view.unique:
        seen: dict[str, list[str]] = {}
        for host in hosts:
            for value in unique_values(view, host, field):
                seen.setdefault(value, []).append(host.name)
        for value, names in seen.items():
            if len(names) > 1:
                yield Difference(f"{view.name}.{field}", [Value(value, names)])


def unique_values(view: View, host: HostResult, field: str) -> set[str]:
    """The values of a unique field in all rows of a host."""
    fact = view.fact(host)
    if fact is None:
        return set()
    found = [getattr(row, field) for row in fact] if view.is_table else [getattr(fact, field)]
    flat = (one for value in found for one in (value if isinstance(value, list) else [value]))
    return {str(one) for one in flat if one is not None}


def _all_equal(cells: Cells) -> bool:
    """Whether all values are equal."""
    return all(value == cells[0][1] for _, value in cells)


def _hashable(value: Any) -> Any:
    """A hashable equivalent of a value."""
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(one)) for key, one in value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
