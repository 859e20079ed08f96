"""`rollbook diff`: two records, two hosts, or start against end of one run."""

from __future__ import annotations

import sys

import click

from rollbook.api.diff import Diff, diff
from rollbook.checks.text import change_text
from rollbook.clean import clean
from rollbook.cli.output import stderr
from rollbook.hosts import fold
from rollbook.records.document import encode

__all__ = ["command"]


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="[B]", required=False)
@click.option("--volatile", is_flag=True, help="Show counters, levels and what comes and goes too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(before: str, after: str | None, *, volatile: bool, as_json: bool) -> None:
    """Show what differs between A and B, field by field; with A alone, between start and end of its run.

    A and B are records, snapshot files, or one host in one: RECORD:HOST. Exits with 1 where anything differs.
    """
    found = diff(before, after, volatile=volatile)
    if as_json:
        click.echo(encode(found), nl=False)
    else:
        _show(found)
    sys.exit(1 if found.differs else 0)


def _show(found: Diff) -> None:
    """Hosts with the same differences together."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, changes in found.hosts.items():
        alike.setdefault(tuple(map(change_text, changes)), []).append(name)
    for texts, names in alike.items():
        if texts:
            click.echo(clean(names[0] if "->" in names[0] else fold(names)))
            for text in texts:
                click.echo(f"  {clean(text)}")
    for side, names in ((found.before, found.only_before), (found.after, found.only_after)):
        if names:
            click.echo(clean(f"only in {side}: {fold(names)}"))
    if found.silent:
        stderr().print(clean(f"nothing to compare from {fold(found.silent)}"), soft_wrap=True)
    if found.hosts:
        differing, total = sum(map(bool, found.hosts.values())), len(found.hosts)
        hosts = f"{total} host{'s' * (total != 1)}"
        stderr().print(f"{differing} of {hosts} with differences" if differing else f"no differences on {hosts}")
    else:
        other = "; compare two with A:HOST B:HOST" if found.only_before and found.only_after else ""
        stderr().print(f"no host is on both sides{other}")
