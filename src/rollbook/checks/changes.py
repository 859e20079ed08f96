"""Field-by-field changes between two states of a host, or between two hosts."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from rollbook.checks.compare import differences, in_band
from rollbook.checks.views import View, status_of, views_of
from rollbook.records.findings import Change
from rollbook.records.hosts import HostResult
from rollbook.sources.base import Compare, key_of
from rollbook.sources.cloud import Cloud
from rollbook.sources.cpuinfo import CpuInfo

__all__ = ["changes", "changes_during_run", "setting_fields", "unread_sources"]

SETTINGS = ("same", "band", "set", "unique", "expected", "delta")
# A hypervisor adds and removes memory of a running guest (ballooning, hot-plug); the kernel then adapts its reserve.
SIZED_BY_HYPERVISOR = frozenset({"meminfo.total_kib", "numa.memory_kib", "sysctl.scaled.vm.min_free_kbytes"})


def changes(
    before: HostResult, after: HostResult, *, volatile: bool = False, one_host: bool = True
) -> Iterator[Change]:
    """Each field that differs. Sources that were not read on one of the sides are skipped: see `unread_sources`.

    Counters, gauges, `info` fields and rows that come and go are volatile: they are included only with `volatile`.
    For two different hosts, unique values are left out, and rows are matched as in checks.
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


def unread_sources(before: HostResult, after: HostResult) -> list[str]:
    """The sources whose fields are compared and that were not read on one of the sides, or on both.

    Sources that neither side was asked for are left out.
    """
    pair = (before, after)
    asked = {*before.facts, *before.readings, *after.facts, *after.readings}
    sources = dict.fromkeys(view.source for view in views_of(pair) if view.compared and view.source in asked)
    return [source for source in sources if "unknown" in (status_of(side, source) for side in pair)]


def changes_during_run(start: HostResult, end: HostResult, *, volatile: bool = False) -> Iterator[Change]:
    """Changes of one host between start and end of a run. The memory size of a virtual machine is volatile."""
    ignored = SIZED_BY_HYPERVISOR if not volatile and _is_virtual(start) else ()
    return (change for change in changes(start, end, volatile=volatile) if change.field not in ignored)


def _is_virtual(host: HostResult) -> bool:
    cpu, cloud = host.fact(CpuInfo), host.fact(Cloud)
    return bool((cpu and "hypervisor" in cpu.flags) or (cloud and cloud.hypervisor))


def setting_fields(view: View) -> dict[str, Compare]:
    """The fields that stay constant while a host runs, without error counters."""
    return {name: how for name, how in _fields(view, volatile=False, one_host=True).items() if how.mode != "delta"}


@functools.cache
def _fields(view: View, *, volatile: bool, one_host: bool) -> dict[str, Compare]:
    if volatile:
        return {name: how for name, how in view.fields.items() if how.mode != "key"}
    wanted = SETTINGS if one_host else ("same", "band", "set", "expected")
    return {name: how for name, how in view.fields.items() if how.mode in wanted and name not in view.omit}


def _view(view: View, before: HostResult, after: HostResult, fields: dict[str, Compare]) -> Iterator[Change]:
    old, new = view.fact(before), view.fact(after)
    if old == new:
        return
    if not view.is_table:
        if old is None or new is None:
            yield Change(view.name, old and "present", new and "present")
        else:
            yield from _row(view, "", old, new, fields)
        return
    old_rows, new_rows = ({key_of(row): row for row in rows} for rows in (old, new))
    for key in {**old_rows, **new_rows}:
        if key not in old_rows or key not in new_rows:
            yield Change(view.name, "present" if key in old_rows else None, "present" if key in new_rows else None, key)
        else:
            yield from _row(view, key, old_rows[key], new_rows[key], fields)


def _row(view: View, row: str, old: Any, new: Any, fields: dict[str, Compare]) -> Iterator[Change]:
    for field, usual in fields.items():
        one, two = getattr(old, field), getattr(new, field)
        if one == two:
            continue
        how = view.rows.get(row, usual)
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
