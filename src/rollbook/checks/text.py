"""Differences and changes as text, source, row and field first, and findings that share a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rollbook.clean import shorten
from rollbook.hosts import fold
from rollbook.records.findings import Change, Difference, Finding, RuleResult
from rollbook.sources import catalogue
from rollbook.sources.base import keys_of

__all__ = [
    "change_text",
    "detail_lines",
    "difference_text",
    "field_text",
    "findings_by_changes",
    "findings_by_text",
    "name_list",
    "value_lines",
    "value_text",
    "with_more",
]

MAX_LENGTH = 160
MAX_NAMES = 5


def detail_lines(finding: Finding) -> list[str]:
    """A line for each difference and change of a finding; a value that hosts share is in its message."""
    differing = [difference for difference in finding.differences if len(difference.values) > 1]
    return [*map(difference_text, differing), *map(change_text, finding.changes)]


def difference_text(difference: Difference) -> str:
    """`net_class eth0: mtu 9000 bytes on 31 of 32 hosts; 1500 bytes on node17`, the most common value first.

    Of lists, only the entries that some hosts lack; hosts without any of these come last, as `missing on node17`.
    """
    total = sum(len(value.hosts) for value in difference.values)
    hosts = [fold(value.hosts) for value in difference.values]
    if most := difference.most_common:
        hosts[0] = f"{len(most.hosts)} of {total} hosts"
    texts = _texts([value.value for value in difference.values], difference.unit)
    parts = [f"{text or 'missing'} on {names}" for text, names in sorted(zip(texts, hosts, strict=True), key=_is_empty)]
    return f"{field_text(difference.field, difference.row)} {'; '.join(parts)}"


def _is_empty(part: tuple[str, str]) -> bool:
    return not part[0]


def change_text(change: Change) -> str:
    """`numa node 0: cpu_count 48 CPUs -> 32 CPUs`; for an error counter, its increase."""
    field = field_text(change.field, change.row)
    if change.mode == "delta" and isinstance(change.before, int) and isinstance(change.after, int):
        return f"{field} rose by {change.after - change.before}"
    old, new = _texts([change.before, change.after], change.unit)
    return f"{field} {old or 'none'} -> {new or 'none'}"


def findings_by_text(problems: Iterable[tuple[str, str]]) -> Iterator[Finding]:
    """One finding per text, with all hosts that have the problem; `problems` are texts with the name of a host."""
    hosts_by_text: dict[str, list[str]] = {}
    for text, host in problems:
        hosts_by_text.setdefault(text, []).append(host)
    for text, hosts in hosts_by_text.items():
        yield Finding(message=f"{text} ({fold(hosts)})", hosts=hosts)


def findings_by_changes(changes_by_host: Mapping[str, Sequence[Change]]) -> Iterator[Finding]:
    """One finding per set of changes, with all hosts that have exactly these changes."""
    found: dict[tuple[str, ...], Finding] = {}
    for host, changes in changes_by_host.items():
        found.setdefault(tuple(map(change_text, changes)), Finding(message="", changes=list(changes))).hosts.append(
            host
        )
    for texts, finding in found.items():
        finding.message = f"{with_more(texts[0], len(texts))} ({fold(finding.hosts)})"
        yield finding


def with_more(text: str, count: int) -> str:
    """The first of `count` texts, and the number of further ones."""
    return text if count == 1 else f"{text}, and {count - 1} more"


def field_text(field: str, row: str = "") -> str:
    """`net_class eth0: mtu` for the field `net_class.mtu`. A row that is a bare number gets its key: `numa node 0:`."""
    source, _, name = field.partition(".")
    definition = catalogue.find(source) if row.isdigit() else None
    keys = keys_of(definition.row_type) if definition else ()
    return f"{' '.join(filter(None, (source, *keys, row)))}: {name}".rstrip()


def _texts(values: Sequence[Any], unit: str) -> list[str]:
    """The values as text; lists without the entries that all of them have, which may leave an empty text."""
    lists = [_entries(value) for value in values]
    if any(entries is None for entries in lists):
        return [value_text(value, unit) for value in values]
    entries = [found for found in lists if found is not None]
    shared = set.intersection(*map(set, entries))
    rest = [[entry for entry in found if entry not in shared] for found in entries]
    if not any(rest):  # the same entries in another order
        return [value_text(value, unit) for value in values]
    return [shorten(" ".join(found), MAX_LENGTH) for found in rest]


def _entries(value: Any) -> list[str] | None:
    """The entries of a list or dict as text; None for other values."""
    if isinstance(value, dict):
        return [f"{count} × {name}" if isinstance(count, int) else f"{name}={count}" for name, count in value.items()]
    return [str(one) for one in value] if isinstance(value, list | tuple) else None


def value_text(value: Any, unit: str = "") -> str:
    """A value with its unit as text."""
    if value is None:
        return "absent"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | dict):
        return shorten(" ".join(_entries(value) or ["empty"]), MAX_LENGTH)
    return shorten(f"{value} {unit}".strip() or "empty", MAX_LENGTH)


def name_list(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """The first names, at most `most`, and the number of further ones."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def value_lines(rules: Sequence[RuleResult]) -> list[str]:
    """A line for each value that a rule compared: `pass  mlperf-fsync-off  checkpoint.fsync: required yes; …`."""
    lines = []
    for rule in rules:
        for value in rule.values:
            parts = {"required": value.required, "measured": value.measured, "declared": value.declared}
            known = "; ".join(f"{name} {value_text(one)}" for name, one in parts.items() if one is not None)
            lines.append(f"{rule.outcome:<15} {rule.id}  {value.what}: {known}")
    return lines
