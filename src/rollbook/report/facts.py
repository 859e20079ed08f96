"""Facts for the page: those that hosts disagree on, those they share, and what changed between start and end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rollbook.checks.compare import differences, key_of
from rollbook.checks.groups import Group, form
from rollbook.checks.shown import value_text
from rollbook.checks.views import View, views
from rollbook.hosts import fold
from rollbook.record.hosts import HostRecord
from rollbook.report.model import Change, FactShown
from rollbook.sources import catalogue
from rollbook.sources.base import Record, compare_of

__all__ = ["changes", "compared"]

STEADY = ("same", "band", "set", "unique", "expected", "info", "delta")
"""What should be at the end as it was at the start; levels and totals are for the charts."""
MOST_CHANGES = 400


def compared(hosts: Sequence[HostRecord]) -> tuple[list[FactShown], list[FactShown], str]:
    """Facts that differ within a group of like hosts, facts that do not, and what was compared, in words."""
    groups = form(hosts, {})
    differing, equal = [], []
    for group in groups:
        for view in views():
            odd = list(differences(view, group.hosts))
            for one in odd:
                values = [(value_text(value.value, one.unit), fold(value.hosts)) for value in one.values]
                differing.append(FactShown(view.name, one.row, one.field.partition(".")[2] or "present", values))
            known = {(one.row, one.field) for one in odd}
            equal += [fact for fact in _shared(view, group) if (fact.row, f"{view.name}.{fact.field}") not in known]
    return differing, equal, _in_words(groups)


def _in_words(groups: Sequence[Group]) -> str:
    if not groups:
        return "No host gave facts."
    lists = "; ".join(f"{fold(host.name for host in group.hosts)} ({group.profile})" for group in groups)
    return f"Compared among like hosts: {lists}."


def _shared(view: View, group: Group) -> Iterator[FactShown]:
    """What the first host of the group that knows has; the same as all others where nothing differs."""
    host = next((host for host in group.hosts if host.facts.get(view.source)), None)
    fact = view.fact(host) if host else None
    if not fact:
        return
    where = fold(host.name for host in group.hosts)
    for row in fact if view.declared.table else [fact]:
        name = key_of(view, row) if view.declared.table else ""
        for field, how in view.compared.items():
            value = getattr(row, field)
            for column, one in value.items() if how.columns else [("", value)]:
                if one not in (None, "", []):
                    yield FactShown(view.name, name, f"{field}.{column}".rstrip("."), [(value_text(one, how.unit), where)])


def changes(start: Sequence[HostRecord], end: Sequence[HostRecord]) -> tuple[list[Change], int]:
    """Facts that changed, hosts with the same change together, and how many changes were too many to list."""
    after = {host.name: host for host in end if host.gave_data}
    found: dict[tuple[str, str, str, str, str], list[str]] = {}
    for host in start:
        if host.gave_data and host.name in after:
            for change in _of_host(host, after[host.name]):
                found.setdefault(change, []).append(host.name)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    shown = [Change(*change, fold(names)) for change, names in ordered[:MOST_CHANGES]]
    return shown, max(0, len(ordered) - MOST_CHANGES)


def _of_host(before: HostRecord, after: HostRecord) -> Iterator[tuple[str, str, str, str, str]]:
    for name, fact in before.facts.items():
        later = after.facts.get(name)
        if later is None or name not in catalogue.NAMES or fact == later:
            continue
        declared = catalogue.source(name)
        steady = {field: how for field, how in compare_of(declared.record).items() if how.mode in STEADY}
        keys = [field for field, how in compare_of(declared.record).items() if how.mode == "key"]
        old, new = (_rows(one, keys) for one in (fact, later))
        for row in dict.fromkeys([*old, *new]):
            if row not in old or row not in new:
                yield name, row, "present", *(("no", "yes") if row in new else ("yes", "no"))
                continue
            for field, how in steady.items():
                was, now = getattr(old[row], field), getattr(new[row], field)
                if was != now:
                    yield name, row, field, value_text(was, how.unit), value_text(now, how.unit)


def _rows(fact: Any, keys: Sequence[str]) -> Mapping[str, Record]:
    if not isinstance(fact, list):
        return {"": fact}
    return {" ".join(str(getattr(row, key)) for key in keys): row for row in fact}
