"""Facts for the page: those that differ, those that are equal, and those that changed between start and end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollbook.checks.changes import changes_during_run
from rollbook.checks.compare import differences, named_rows, shared_value
from rollbook.checks.groups import Group, form_groups
from rollbook.checks.text import value_text
from rollbook.checks.views import View, status_of, views_of
from rollbook.hosts import fold
from rollbook.records.hosts import HostResult
from rollbook.report.model import ChangeShown, FactShown

__all__ = ["compare_facts", "group_changes"]

MAX_CHANGES = 400


def compare_facts(hosts: Sequence[HostResult]) -> tuple[list[FactShown], list[FactShown], str]:
    """Facts that differ within a group of similar hosts, those that do not, and a sentence about the groups."""
    groups = form_groups(hosts, {})
    differing, equal = [], []
    for group in groups:
        for view in views_of(group.hosts):
            found = list(differences(view, group.hosts))
            for one in found:
                values = [(value_text(value.value, one.unit), fold(value.hosts)) for value in one.values]
                differing.append(FactShown(view.name, one.row, one.field.partition(".")[2] or "present", values))
            known = {(one.row, one.field) for one in found}
            equal += [fact for fact in _shared(view, group) if (fact.row, f"{view.name}.{fact.field}") not in known]
    return differing, equal, _described(groups)


def _described(groups: Sequence[Group]) -> str:
    if not groups:
        return "No host returned facts."
    lists = "; ".join(f"{fold(host.name for host in group.hosts)} ({group.profile})" for group in groups)
    return f"Compared among similar hosts: {lists}."


def _shared(view: View, group: Group) -> Iterator[FactShown]:
    """Facts that are equal on all hosts of the group on which they were read."""
    read = [host for host in group.hosts if status_of(host, view.source) == "ok"]
    known = {host.name: fact for host in read if (fact := view.fact(host))}
    if not known:
        return
    where = fold(known)
    first, *others = (named_rows(view, fact) for fact in known.values())
    for name, rows in first.items():
        if any(name not in other for other in others):
            continue
        for field, how in view.compared.items():
            value = shared_value(rows, field)
            for column, one in value.items() if how.columns and isinstance(value, dict) else [("", value)]:
                if one not in (None, "", []):
                    yield FactShown(
                        view.name, name, f"{field}.{column}".rstrip("."), [(value_text(one, how.unit), where)]
                    )


def group_changes(start: Sequence[HostResult], end: Sequence[HostResult]) -> tuple[list[ChangeShown], int]:
    """Facts that changed, hosts with the same change together, and the number of changes that are not listed."""
    after = {host.name: host for host in end if host.gave_data}
    found: dict[tuple[str, str, str, str, str], list[str]] = {}
    for host in start:
        if host.gave_data and host.name in after:
            for change in changes_during_run(host, after[host.name]):
                source, _, field = change.field.partition(".")
                old, new = (value_text(value, change.unit) for value in (change.before, change.after))
                found.setdefault((source, change.row, field or "present", old, new), []).append(host.name)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    shown = [ChangeShown(*change, fold(names)) for change, names in ordered[:MAX_CHANGES]]
    return shown, max(0, len(ordered) - MAX_CHANGES)
