"""Compares two records, host by host and field by field."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollbook.api.arguments import check_arguments
from rollbook.api.checking import run_data_of
from rollbook.api.listing import record_path
from rollbook.checks.changes import changes, changes_during_run, unread_sources
from rollbook.checks.run_data import RunData
from rollbook.errors import UsageError
from rollbook.hosts import fold
from rollbook.records.findings import Change
from rollbook.records.hosts import HostResult

__all__ = ["Diff", "diff", "split_host"]


class Diff(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.diff/1"):
    """What was compared, the changes by host, and what could not be compared.

    These are hosts with data on one side only or on neither, and the sources that were not read, with their hosts.
    """

    before: str
    after: str
    hosts: dict[str, list[Change]]
    only_before: list[str] = []
    only_after: list[str] = []
    without_data: list[str] = []
    unread: dict[str, list[str]] = {}

    @property
    def differs(self) -> bool:
        """Whether anything differs between the two sides."""
        return bool(self.only_before or self.only_after or any(self.hosts.values()))

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing from the comparison: all hosts have data, and all sources were read."""
        return not self.without_data and not self.unread


@check_arguments
def diff(record: Path | str, other: Path | str | None = None, *, volatile: bool = False) -> Diff:
    """Compare two records or snapshot files, or one host in each: `"RECORD:HOST"`. A host of one side is that of both.

    Without `other`, compare start and end of the run. `volatile` includes counters, gauges and other changing values.
    Raises `RecordError` if a record does not exist, and `UsageError` if there is nothing to compare.
    """
    before, after = str(record), None if other is None else str(other)
    old, one = _open(record)
    if other is None or after is None:
        if not old.end:
            raise UsageError(f"{before} has no end to compare its start with; give two records")
        sides, names = (_picked(old.start, one), _picked(old.end, one)), (f"start of {before}", f"end of {before}")
    else:
        new, two = _open(other)
        one, two = one or two, two or one
        if one and two and one != two:
            ((first,), (second,)) = _picked(old.start, one), _picked(new.start, two)
            found = list(changes(first, second, volatile=volatile, one_host=False))
            pair = f"{one} -> {two}"
            missing = {source: [pair] for source in unread_sources(first, second)}
            return Diff(before=before, after=after, hosts={pair: found}, unread=missing)
        sides, names = (_picked(old.start, one), _picked(new.start, two)), (before, after)
    lefts, rights = ({host.name: host for host in side if host.gave_data} for side in sides)
    if not lefts and not rights:
        raise UsageError(f"no host returned data, neither in {names[0]} nor in {names[1]}")
    compare = changes_during_run if after is None else changes
    requested = dict.fromkeys(host.name for side in sides for host in side)
    both = [name for name in lefts if name in rights]
    unread: dict[str, list[str]] = {}
    for name in both:
        for source in unread_sources(lefts[name], rights[name]):
            unread.setdefault(source, []).append(name)
    return Diff(
        before=names[0],
        after=names[1],
        hosts={name: list(compare(lefts[name], rights[name], volatile=volatile)) for name in both},
        only_before=[name for name in lefts if name not in rights],
        only_after=[name for name in rights if name not in lefts],
        without_data=[name for name in requested if name not in lefts and name not in rights],
        unread=unread,
    )


def _open(record: Path | str) -> tuple[RunData, str | None]:
    """A record, and the host in it if one is given."""
    path, host = split_host(str(record))
    return run_data_of(record_path(path if isinstance(record, str) else Path(path))), host


def split_host(text: str) -> tuple[str, str | None]:
    """`RECORD:HOST` in two. Paths and hosts (`fd00::1`) may contain colons, names of records may not."""
    colons = [at for at, character in enumerate(text) if character == ":"]
    for end in (len(text), *reversed(colons)):
        if os.path.lexists(text[:end]):
            return text[:end], text[end + 1 :] or None
    return (text[: colons[0]], text[colons[0] + 1 :]) if colons else (text, None)


def _picked(hosts: Sequence[HostResult], name: str | None) -> list[HostResult]:
    if name is None:
        return list(hosts)
    found = [host for host in hosts if host.name == name]
    if not found:
        raise UsageError(f"no host {name} among {fold(host.name for host in hosts)}")
    if not found[0].gave_data:
        raise UsageError(f"{name} returned no data to compare: {found[0].reason or found[0].status}")
    return found
