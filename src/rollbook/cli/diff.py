"""`rollbook diff`: two records, two hosts, or start against end of one run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from rollbook.api.judging import subject_of
from rollbook.checks.changes import changes
from rollbook.checks.model import Change
from rollbook.checks.shown import change_text
from rollbook.checks.subject import Subject
from rollbook.clean import clean
from rollbook.cli.output import stderr
from rollbook.errors import UsageError
from rollbook.hosts import fold
from rollbook.records.document import encode
from rollbook.records.hosts import HostRecord

__all__ = ["command"]


class Diff(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.diff/1"):
    """Differences by host, the hosts that gave data on one side only or on neither, and what was compared."""

    before: str
    after: str
    hosts: dict[str, list[Change]]
    only_before: list[str] = []
    only_after: list[str] = []
    silent: list[str] = []


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="[B]", required=False)
@click.option("--volatile", is_flag=True, help="Show counters, levels and what comes and goes too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(before: str, after: str | None, *, volatile: bool, as_json: bool) -> None:
    """Show what differs between A and B, field by field; with A alone, between start and end of its run.

    A and B are records, snapshot files, or one host in one: RECORD:HOST. Exits with 1 where anything differs.
    """
    diff = _diff(before, after, volatile=volatile)
    if as_json:
        click.echo(encode(diff), nl=False)
    else:
        _show(diff)
    sys.exit(1 if diff.only_before or diff.only_after or any(diff.hosts.values()) else 0)


def _diff(before: str, after: str | None, *, volatile: bool) -> Diff:
    old, one = _open(before)
    if after is None:
        if not old.end:
            raise UsageError(f"{before} has no end to compare its start with; name two records")
        sides, names = (_picked(old.start, one), _picked(old.end, one)), (f"start of {before}", f"end of {before}")
    else:
        new, two = _open(after)
        if one and two and one != two:
            ((first,), (second,)) = _picked(old.start, one), _picked(new.start, two)
            found = list(changes(first, second, volatile=volatile, one_host=False))
            return Diff(before=before, after=after, hosts={f"{one} -> {two}": found})
        sides, names = (_picked(old.start, one), _picked(new.start, two)), (before, after)
    lefts, rights = ({host.name: host for host in side if host.gave_data} for side in sides)
    if not lefts and not rights:
        raise UsageError(f"no host gave anything to compare, neither in {names[0]} nor in {names[1]}")
    asked = dict.fromkeys(host.name for side in sides for host in side)
    return Diff(
        before=names[0],
        after=names[1],
        hosts={name: list(changes(lefts[name], rights[name], volatile=volatile)) for name in lefts if name in rights},
        only_before=[name for name in lefts if name not in rights],
        only_after=[name for name in rights if name not in lefts],
        silent=[name for name in asked if name not in lefts and name not in rights],
    )


def _open(text: str) -> tuple[Subject, str | None]:
    """A record, and the host in it if one is named; a directory's own name may hold a colon."""
    if Path(text).exists():
        return subject_of(Path(text)), None
    path, colon, host = text.rpartition(":")
    if not colon:
        raise UsageError(f"{text} does not exist")
    return subject_of(Path(path)), host


def _picked(hosts: Sequence[HostRecord], name: str | None) -> list[HostRecord]:
    if name is None:
        return list(hosts)
    found = [host for host in hosts if host.name == name]
    if not found:
        raise UsageError(f"there is no host {name} among {fold(host.name for host in hosts)}")
    if not found[0].gave_data:
        raise UsageError(f"{name} gave nothing to compare: {found[0].reason or found[0].status}")
    return found


def _show(diff: Diff) -> None:
    """Hosts with the same differences together."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, found in diff.hosts.items():
        alike.setdefault(tuple(map(change_text, found)), []).append(name)
    for texts, names in alike.items():
        if texts:
            click.echo(clean(names[0] if "->" in names[0] else fold(names)))
            for text in texts:
                click.echo(f"  {clean(text)}")
    for side, names in ((diff.before, diff.only_before), (diff.after, diff.only_after)):
        if names:
            click.echo(clean(f"only in {side}: {fold(names)}"))
    if diff.silent:
        stderr().print(clean(f"nothing to compare from {fold(diff.silent)}"), soft_wrap=True)
    same = [name for name, found in diff.hosts.items() if not found]
    if diff.hosts:
        stderr().print(f"{len(same)} of {len(diff.hosts)} hosts the same")
    else:
        other = "; compare two with A:HOST B:HOST" if diff.only_before and diff.only_after else ""
        stderr().print(f"no host is in both{other}")
