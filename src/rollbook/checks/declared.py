"""Rules that are declared in tables, one per group of fields.

Four kinds: `mismatch` (hosts of a group differ), `duplicate` (hosts share a unique value), `rose` (an error counter
rose during the run), `changed` (start and end differ). Each field belongs to the rule with the most specific matching
pattern; the pattern `*` matches the remaining fields, such as those of plug-in sources.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterator
from importlib import resources
from typing import Literal

import msgspec

from rollbook.checks.changes import changes_during_run, setting_fields
from rollbook.checks.compare import differences, duplicates, odd_hosts, unique_values
from rollbook.checks.rule import Manual, Rule
from rollbook.checks.run_data import EndFacts, RunData
from rollbook.checks.text import difference_text, field_text, findings_by_changes, name_list, value_text, with_more
from rollbook.checks.times import rise
from rollbook.checks.views import View, status_of, views_of
from rollbook.clean import count_text
from rollbook.errors import CannotTell, NotApplicable
from rollbook.hosts import fold
from rollbook.records.findings import Change, Difference, Finding, Severity

__all__ = ["FILES", "Row", "rows", "rules"]

FILES = ("cpu", "memory", "system", "network", "storage", "accelerators", "identity", "run")
# Fields without a declared rule, and why.
IGNORED = {
    "sysctl.settings.kernel.perf_event_max_sample_rate": "the kernel lowers it when sampling takes too long",
    "identity.boot_id": "host-rebooted checks it",
}
ONE_MACHINE = "boot-id-duplicate"
"""The rule that reports several names of one machine. Other rules count such a machine once."""
Kind = Literal["mismatch", "duplicate", "rose", "changed"]


class Row(Manual, frozen=True, forbid_unknown_fields=True):
    """One declared rule, with its manual."""

    kind: Kind
    severity: Severity
    fields: list[str]

    def rank(self, field: str) -> int:
        """The position of a field in the list, which is in order of importance; fields matched by patterns are last."""
        return self.fields.index(field) if field in self.fields else len(self.fields)


@functools.cache
def rows() -> dict[str, Row]:
    """All declared rules by id."""
    found: dict[str, Row] = {}
    for file in FILES:
        text = resources.files("rollbook.checks").joinpath("declared", f"{file}.toml").read_bytes()
        found |= msgspec.toml.decode(text, type=dict[str, Row])
    return found


@functools.cache
def rule_for(kind: Kind, field: str) -> str:
    """The id of the rule for a field: that with its exact name, else that with the longest matching pattern."""
    patterns = [(pattern, name) for name, row in rows().items() if row.kind == kind for pattern in row.fields]
    matching = [(p == field, len(p), name) for p, name in patterns if fnmatch.fnmatchcase(field, p)]
    return max(matching)[2]


def rules() -> list[Rule]:
    """The declared rules."""
    return [_rule(name, row) for name, row in rows().items()]


def _rule(name: str, row: Row) -> Rule:
    check = {"mismatch": _mismatches, "duplicate": _duplicates, "rose": _changes, "changed": _changes}[row.kind]
    needs = (EndFacts,) if row.kind in ("rose", "changed") else ()
    return Rule(name, row.severity, needs, functools.partial(check, name, row), row)


def _mismatches(name: str, row: Row, run: RunData) -> Iterator[Finding]:
    """One finding per set of odd hosts, with all fields in which they differ from their group."""
    _require_data(run)
    if not any(len(group.hosts) > 1 for group in run.groups):
        raise NotApplicable("no group has two hosts")
    found: dict[tuple[str, tuple[str, ...]], list[Difference]] = {}
    for group, hosts, difference in _by_rule(run)["mismatch"].get(name, []):
        found.setdefault((group, hosts), []).append(difference)
    for (group, hosts), differing in found.items():
        differing.sort(key=lambda difference: row.rank(difference.field))
        text = with_more(difference_text(differing[0]), len(differing))
        advice = f"{_target(differing[0])} {row.fix}"
        yield Finding(message=text, hosts=list(hosts), group=group, differences=differing, advice=advice)
    _require_read(name, row, run, found=bool(found))


def _require_data(run: RunData) -> None:
    """Raise `CannotTell` if several hosts were requested, and so few returned data that none can be compared."""
    if len(run.hosts_with_data) < min(2, len(run.start)):
        raise CannotTell(f"only {len(run.hosts_with_data)} of {count_text(len(run.start), 'host')} returned data")


def _target(difference: Difference) -> str:
    """The most common value: only a person can decide whether the odd hosts or the others are wrong."""
    most, total = difference.most_common, sum(len(value.hosts) for value in difference.values)
    if most is None:
        return "No value is the most common: decide which one is right."
    if isinstance(most.value, list | dict):
        return f"{len(most.hosts)} of {total} hosts agree: compare the others with them."
    name = difference.field.partition(".")[2] or difference.field
    return f"{len(most.hosts)} of {total} hosts have {name} {value_text(most.value, difference.unit)}."


def _duplicates(name: str, row: Row, run: RunData) -> Iterator[Finding]:
    _require_data(run)
    if len(run.hosts_with_data) < 2:
        raise NotApplicable("there is only one host")
    found = _by_rule(run)["duplicate"].get(name, [])
    for _, hosts, difference in found:
        value = f"{field_text(difference.field)} {value_text(difference.values[0].value)}"
        names = fold(hosts)
        text = f"{names} are names of one machine ({value})" if name == ONE_MACHINE else f"{value} on {names}"
        yield Finding(message=text, hosts=list(hosts), differences=[difference])
    _require_read(name, row, run, found=bool(found))
    _require_unique_values(name, row, run)


def _changes(name: str, row: Row, run: RunData) -> Iterator[Finding]:
    changed = _changed(run).get((row.kind, name), {})
    for finding in findings_by_changes(changed):
        if row.kind == "rose":
            finding.evidence = {**rise(run.path, finding.changes[0], finding.hosts)}
        yield finding
    _require_read(name, row, run, found=bool(changed))
    _require_end(name, row, run)


def _views_of_rule(name: str, row: Row, run: RunData) -> list[View]:
    """The views that the rule names; for a rule with the pattern `*`, those with a field that no other rule has."""
    named = {field.partition(".")[0] for field in row.fields}
    return [view for view in _views(run) if view.name in named or ("*" in named and _has_other_fields(name, row, view))]


def _has_other_fields(name: str, row: Row, view: View) -> bool:
    by_kind = {
        "mismatch": view.compared,
        "duplicate": view.unique,
        "rose": view.error_counters,
        "changed": setting_fields(view),
    }
    return any(rule_for(row.kind, f"{view.name}.{field}") == name for field in by_kind[row.kind])


@functools.lru_cache(maxsize=1)
def _views(run: RunData) -> tuple[View, ...]:
    return views_of(run.hosts_with_data)


def _require_read(name: str, row: Row, run: RunData, *, found: bool) -> None:
    """Raise if a source was not read on some hosts, or if no host has such a device or setting."""
    if not run.hosts_with_data:
        raise CannotTell("no host returned data")
    sources = sorted({view.source for view in _views_of_rule(name, row, run)})
    unread = {source: hosts for source in sources if (hosts := run.state(source).unread)}
    if unread:
        missing = {host for names in unread.values() for host in names}
        raise CannotTell(f"{name_list(list(unread))} not read on {fold(missing)}")
    if not found and not any(run.state(source).present for source in sources):
        raise NotApplicable(f"no host has {name_list(sources)}" if sources else "other rules check all its fields")


def _require_unique_values(name: str, row: Row, run: RunData) -> None:
    """Raise if a host did not show any of the unique values to an unprivileged user: it was not compared."""
    views = [(view, field) for view in _views_of_rule(name, row, run) for field in view.unique]
    fields = [(view, field) for view, field in views if rule_for("duplicate", f"{view.name}.{field}") == name]
    hidden = [
        host.name
        for host in run.hosts_with_data
        if host.uid and not any(unique_values(view, host, field) for view, field in fields)
    ]
    if hidden:
        raise CannotTell(f"{name_list([field for _, field in fields])} readable only by root on {fold(hidden)}")


def _require_end(name: str, row: Row, run: RunData) -> None:
    """Raise if a host was not read at the end: its changes are unknown."""
    sources = {view.source for view in _views_of_rule(name, row, run)}
    after = {host.name: host for host in run.end if host.gave_data}
    unread = [
        host.name
        for host in run.hosts_with_data
        if host.name not in after or any(status_of(after[host.name], source) == "unknown" for source in sources)
    ]
    if unread:
        raise CannotTell(f"not read at the end on {fold(unread)}")


_Found = tuple[str, tuple[str, ...], Difference]
"""Group, odd hosts, difference."""


@functools.lru_cache(maxsize=1)
def _by_rule(run: RunData) -> dict[Kind, dict[str, list[_Found]]]:
    """Every difference and duplicate of the run by kind and rule, computed once for all rules."""
    found: dict[Kind, dict[str, list[_Found]]] = {"mismatch": {}, "duplicate": {}}
    for view in _views(run):
        for hosts, is_alias_rule in ((run.hosts_with_data, True), (run.machines, False)):
            for difference in duplicates(view, hosts):
                rule = rule_for("duplicate", difference.field)
                if (rule == ONE_MACHINE) == is_alias_rule:
                    names = tuple(difference.values[0].hosts)
                    found["duplicate"].setdefault(rule, []).append(("", names, difference))
        for group in run.groups:
            for difference in differences(view, group.hosts):
                if difference.field not in IGNORED:
                    rule = rule_for("mismatch", difference.field)
                    names = tuple(odd_hosts(difference))
                    found["mismatch"].setdefault(rule, []).append((group.name, names, difference))
    return found


@functools.lru_cache(maxsize=1)
def _changed(run: RunData) -> dict[tuple[Kind, str], dict[str, list[Change]]]:
    """The changes of each host during the run by kind and rule; error counters only if they rose."""
    found: dict[tuple[Kind, str], dict[str, list[Change]]] = {}
    for before, after in run.pairs():
        for change in changes_during_run(before, after):
            kind: Kind = "rose" if change.mode == "delta" else "changed"
            if change.field in IGNORED or (kind == "rose" and not _rose(change)):
                continue
            found.setdefault((kind, rule_for(kind, change.field)), {}).setdefault(before.name, []).append(change)
    return found


def _rose(change: Change) -> bool:
    """A lower count was reset by a boot or a driver, which other rules report."""
    return isinstance(change.before, int) and isinstance(change.after, int) and change.after > change.before
