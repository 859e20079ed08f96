"""Rules that are rows of a table: what the facts themselves declare, under ids that people know.

Four kinds: `mismatch` (hosts of a group differ), `duplicate` (hosts share what is one host's own), `rose` (a count of
errors rose over the run), `changed` (start and end differ). Each field belongs to the rule with the pattern that fits
it best; the pattern `*` takes what no other does, such as fields of other packages' sources.
"""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Literal

import msgspec

from rollbook.checks.changes import changes, settled
from rollbook.checks.compare import differences, duplicates, odd_hosts, own_values
from rollbook.checks.rule import SECTIONS, Manual, Rule
from rollbook.checks.subject import Ended, Subject
from rollbook.checks.text import change_text, difference_text, some, value_text
from rollbook.checks.times import rise
from rollbook.checks.views import View, status_of, views_of
from rollbook.errors import CannotTell, NotApplicable
from rollbook.hosts import fold
from rollbook.records.findings import Change, Difference, Finding, Severity

__all__ = ["FILES", "Row", "rows", "rules"]

FILES = ("cpu", "memory", "system", "network", "storage", "accelerators", "identity", "run")
# Set by the kernel itself as it runs, or judged by a rule of its own.
IGNORED = {
    "sysctl.settings.kernel.perf_event_max_sample_rate": "lowered by the kernel whenever sampling takes too long",
    "identity.boot_id": "the rule host-rebooted looks at it",
}
Kind = Literal["mismatch", "duplicate", "rose", "changed"]


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of the table, as its file declares it."""

    kind: Kind
    severity: Severity
    fields: list[str]
    what: str
    why: str
    example: str
    fix: str
    reference: str

    def place(self, field: str) -> int:
        """Where a field stands in the list, the most telling first; the others are behind."""
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
    """The id of the rule that watches a field: an exact name first, then the longest pattern that fits."""
    patterns = [(pattern, name) for name, row in rows().items() if row.kind == kind for pattern in row.fields]
    fitting = [(p == field, len(p), name) for p, name in patterns if fnmatch.fnmatchcase(field, p)]
    return max(fitting)[2]


def rules() -> list[Rule]:
    """The declared rules, ready to be asked."""
    return [_rule(name, row) for name, row in rows().items()]


def _rule(name: str, row: Row) -> Rule:
    check = {"mismatch": _mismatches, "duplicate": _duplicates, "rose": _changes, "changed": _changes}[row.kind]
    manual = Manual(row.what, **{section: getattr(row, section) for section in SECTIONS})
    needs = (Ended,) if row.kind in ("rose", "changed") else ()
    return Rule(name, row.severity, needs, functools.partial(check, name, row), manual)


def _mismatches(name: str, row: Row, run: Subject) -> Iterator[Finding]:
    """One finding for each set of odd hosts, with all fields in which these differ from their group."""
    if not any(len(group.hosts) > 1 for group in run.groups):
        raise NotApplicable("no two hosts are of one group")
    found: dict[tuple[str, tuple[str, ...]], list[Difference]] = {}
    for group, hosts, difference in _by_rule(run)["mismatch"].get(name, []):
        found.setdefault((group, hosts), []).append(difference)
    for (group, hosts), told in found.items():
        told.sort(key=lambda difference: row.place(difference.field))
        text = _with_more(difference_text(told[0]), len(told))
        yield Finding(message=text, hosts=list(hosts), group=group, differences=told)
    _must_be_known(name, row, run, found=bool(found))


def _duplicates(name: str, row: Row, run: Subject) -> Iterator[Finding]:
    if len(run.telling) < 2:
        raise NotApplicable("there is one host only")
    found = _by_rule(run)["duplicate"].get(name, [])
    for _, hosts, difference in found:
        field = difference.field.partition(".")[2]
        yield Finding(
            message=f"{field} {value_text(difference.values[0].value)}: {fold(hosts)}",
            hosts=list(hosts),
            differences=[difference],
        )
    _must_be_known(name, row, run, found=bool(found))
    _must_have_told(name, row, run)


def _changes(name: str, row: Row, run: Subject) -> Iterator[Finding]:
    """Hosts on which the very same changed are one finding."""
    alike: dict[tuple[str, ...], list[tuple[str, list[Change]]]] = {}
    for host, told in _changed(run).get((row.kind, name), {}).items():
        alike.setdefault(tuple(map(change_text, told)), []).append((host, told))
    for texts, hosts in alike.items():
        names, told = [host for host, _ in hosts], hosts[0][1]
        when = rise(run.path, told[0], names) if row.kind == "rose" else {}
        text = f"{_with_more(texts[0], len(texts))} ({fold(names)})"
        yield Finding(message=text, hosts=names, changes=told, evidence={**when})
    _must_be_known(name, row, run, found=bool(alike))
    _must_have_ended(name, row, run)


def _with_more(text: str, count: int) -> str:
    return text if count == 1 else f"{text}, and {count - 1} more"


def _watched(name: str, row: Row, run: Subject) -> list[View]:
    """The views that the rule names; for one that takes what is left, those with such a field."""
    named = {field.partition(".")[0] for field in row.fields}
    return [view for view in _views(run) if view.name in named or ("*" in named and _left(name, row, view))]


def _left(name: str, row: Row, view: View) -> bool:
    by_kind = {"mismatch": view.compared, "duplicate": view.unique, "rose": view.counted, "changed": settled(view)}
    return any(rule_for(row.kind, f"{view.name}.{field}") == name for field in by_kind[row.kind])


@functools.lru_cache(maxsize=1)
def _views(run: Subject) -> tuple[View, ...]:
    return views_of(run.telling)


def _must_be_known(name: str, row: Row, run: Subject, *, found: bool) -> None:
    """Tell what the findings leave open: some hosts could not be asked, or no host has such a thing."""
    sources = sorted({view.source for view in _watched(name, row, run)})
    unread = {source: unknown for source in sources if (unknown := run.states(source).unknown)}
    if unread:
        hosts = {host for unknown in unread.values() for host in unknown}
        raise CannotTell(f"{some(list(unread))} not read on {fold(hosts)}")
    if not found and not any(run.states(source).there for source in sources):
        raise NotApplicable(f"no host has {some(sources)}" if sources else "every fact has a rule of its own")


def _must_have_told(name: str, row: Row, run: Subject) -> None:
    """Some of what is a host's own is for root's eyes only: a host that tells a user none of it was not compared."""
    watched = [(view, field) for view in _watched(name, row, run) for field in view.unique]
    own = [(view, field) for view, field in watched if rule_for("duplicate", f"{view.name}.{field}") == name]
    silent = [
        host.name for host in run.telling if host.uid and not any(own_values(view, host, field) for view, field in own)
    ]
    if silent:
        raise CannotTell(f"{some([field for _, field in own])} not told to a user who is not root on {fold(silent)}")


def _must_have_ended(name: str, row: Row, run: Subject) -> None:
    """A host that could tell at the start and not at the end may have changed without anybody seeing it."""
    sources = {view.source for view in _watched(name, row, run)}
    after = {host.name: host for host in run.end if host.gave_data}
    silent = [
        host.name
        for host in run.telling
        if host.name not in after or any(status_of(after[host.name], source) == "unknown" for source in sources)
    ]
    if silent:
        raise CannotTell(f"not read at the end on {fold(silent)}")


Told = tuple[str, tuple[str, ...], Difference]
_Sorted = dict[Kind, dict[str, list[Told]]]


@functools.lru_cache(maxsize=1)
def _by_rule(run: Subject) -> _Sorted:
    """Every difference and duplicate of the run, by kind and rule; found once for all rules."""
    found: _Sorted = {"mismatch": {}, "duplicate": {}}

    def keep(kind: Kind, group: str, told: Iterable[Difference]) -> None:
        for difference in told:
            if difference.field not in IGNORED or kind == "duplicate":
                hosts = difference.values[0].hosts if kind == "duplicate" else odd_hosts(difference)
                rule = rule_for(kind, difference.field)
                found[kind].setdefault(rule, []).append((group, tuple(hosts), difference))

    for view in _views(run):
        keep("duplicate", "", duplicates(view, run.telling))
        for group in run.groups:
            keep("mismatch", group.name, differences(view, group.hosts))
    return found


@functools.lru_cache(maxsize=1)
def _changed(run: Subject) -> dict[tuple[Kind, str], dict[str, list[Change]]]:
    """What changed on each host over the run, by kind and rule; counts only where they rose."""
    found: dict[tuple[Kind, str], dict[str, list[Change]]] = {}
    for before, after in run.pairs():
        for change in changes(before, after):
            kind: Kind = "rose" if change.mode == "delta" else "changed"
            if change.field in IGNORED or (kind == "rose" and not _rose(change)):
                continue
            found.setdefault((kind, rule_for(kind, change.field)), {}).setdefault(before.name, []).append(change)
    return found


def _rose(change: Change) -> bool:
    """A count that is lower began anew with a boot or a driver, which other rules see."""
    return isinstance(change.before, int) and isinstance(change.after, int) and change.after > change.before
