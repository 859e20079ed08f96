"""What differs between two looks at hosts, field by field: the start and end of a run, two records, two hosts."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from rollbook.checks.compare import differences, in_band, key_of
from rollbook.checks.views import View, status_of, views_of
from rollbook.records.findings import Change
from rollbook.records.hosts import HostResult
from rollbook.sources.base import Compare

__all__ = ["changes", "settled"]

SETTLED = ("same", "band", "set", "unique", "expected", "delta")


def changes(
    before: HostResult, after: HostResult, *, volatile: bool = False, one_host: bool = True
) -> Iterator[Change]:
    """Each field that is not the same. A source that one side could not tell is passed over.

    Volatile are counters, levels and what is only shown, and rows that come and go; they are left out unless asked
    for. For two different hosts, what is each host's own is left out too, and rows are matched as checks do.
    """
    for view in views_of((before, after), all_rows=volatile):
        if "unknown" in (status_of(before, view.source), status_of(after, view.source)):
            continue
        if one_host or volatile or not view.identity:
            yield from _view(view, before, after, _fields(view, volatile=volatile, one_host=one_host))
        else:
            sides = [msgspec.structs.replace(host, name=name) for host, name in ((before, "a"), (after, "b"))]
            for difference in differences(view, sides):
                by_side = {part.hosts[0]: part.value for part in difference.values}
                yield Change(difference.field, by_side["a"], by_side["b"], difference.row, difference.unit)


def settled(view: View) -> dict[str, Compare]:
    """The fields that stay what they are while a host runs, counts of errors aside."""
    return {name: how for name, how in _fields(view, volatile=False, one_host=True).items() if how.mode != "delta"}


@functools.cache
def _fields(view: View, *, volatile: bool, one_host: bool) -> dict[str, Compare]:
    if volatile:
        return {name: how for name, how in view.fields.items() if how.mode != "key"}
    wanted = SETTLED if one_host else ("same", "band", "set", "expected")
    return {name: how for name, how in view.fields.items() if how.mode in wanted and name not in view.omit}


def _view(view: View, before: HostResult, after: HostResult, fields: dict[str, Compare]) -> Iterator[Change]:
    old, new = view.fact(before), view.fact(after)
    if old == new:
        return
    if not view.table:
        if old is None or new is None:
            yield Change(view.name, old and "present", new and "present")
        else:
            yield from _record(view, "", old, new, fields)
        return
    olds, news = ({key_of(view, row): row for row in rows} for rows in (old, new))
    for key in {**olds, **news}:
        if key not in olds or key not in news:
            yield Change(view.name, "present" if key in olds else None, "present" if key in news else None, key)
        else:
            yield from _record(view, key, olds[key], news[key], fields)


def _record(view: View, row: str, old: Any, new: Any, fields: dict[str, Compare]) -> Iterator[Change]:
    for field, how in fields.items():
        one, two = getattr(old, field), getattr(new, field)
        if one == two:
            continue
        if how.columns:
            for column in sorted({*one, *two}):
                yield from _value(f"{view.name}.{field}.{column}", row, how, one.get(column), two.get(column))
        else:
            yield from _value(f"{view.name}.{field}", row, how, one, two)


def _value(field: str, row: str, how: Compare, one: Any, two: Any) -> Iterator[Change]:
    numbers = isinstance(one, int | float) and isinstance(two, int | float)
    near = how.mode == "band" and numbers and in_band(two, one, how.tolerance)
    same_members = how.mode == "set" and one is not None and two is not None and set(one) == set(two)
    if one != two and not near and not same_members:
        yield Change(field, one, two, row, how.unit, how.mode)
