"""`rollbook diff`: compare two records, two hosts, or start and end of a run."""

from __future__ import annotations

import sys

import click

from rollbook.api.diff import Diff, diff, split_host
from rollbook.checks.text import change_text
from rollbook.clean import clean, count_text
from rollbook.cli.options import Command, json_option
from rollbook.cli.output import names_by, print_json, stderr
from rollbook.cli.record_argument import find
from rollbook.errors import ExitCode
from rollbook.hosts import fold

__all__ = ["command"]


@click.command("diff", cls=Command)
@click.argument("record", metavar="RECORD[:HOST]")
@click.argument("other", metavar="[OTHER[:HOST]]", required=False)
@click.option("--volatile", is_flag=True, help="Include counters, gauges and other changing values.")
@json_option
def command(record: str, other: str | None, *, volatile: bool, as_json: bool) -> None:
    """Compare RECORD with OTHER, field by field; without OTHER, the start and end of its run.

    Both are records, snapshot files, or one host in either. Exits with 1 if anything differs, else with 3 if a host
    has no data or a source was not read.
    """
    found = diff(_named(record), None if other is None else _named(other), volatile=volatile)
    if as_json:
        print_json(found)
    else:
        _show(found)
    if found.differs:
        sys.exit(ExitCode.FINDINGS)
    sys.exit(ExitCode.SUCCESS if found.is_complete else ExitCode.INCOMPLETE)


def _named(text: str) -> str:
    """The path of a record, with the host if one is given."""
    record, host = split_host(text)
    return f"{find(record)}:{host}" if host else str(find(record))


def _show(found: Diff) -> None:
    """Print the differences, hosts with the same ones together."""
    alike = names_by((tuple(map(change_text, changes)), name) for name, changes in found.hosts.items())
    for texts, names in alike.items():
        if texts:
            click.echo(clean(names[0] if "->" in names[0] else fold(names)))
            for text in texts:
                click.echo(f"  {clean(text)}")
    for side, names in ((found.before, found.only_before), (found.after, found.only_after)):
        if names:
            click.echo(clean(f"only in {side}: {fold(names)}"))
    if found.without_data:
        stderr().print(clean(f"nothing to compare from {fold(found.without_data)}"), soft_wrap=True)
    _show_unread(found)
    if found.hosts:
        differing, hosts = sum(map(bool, found.hosts.values())), count_text(len(found.hosts), "host")
        where = "" if found.is_complete else " in what was read"
        stderr().print(f"{differing} of {hosts} with differences" if differing else f"no differences{where} on {hosts}")
    else:
        other = "; compare two with A:HOST B:HOST" if found.only_before and found.only_after else ""
        stderr().print(f"no host is on both sides{other}")


def _show_unread(found: Diff) -> None:
    """Print the sources that were not compared, those of the same hosts together."""
    alike = names_by((tuple(names), source) for source, names in found.unread.items())
    for hosts, sources in alike.items():
        where = hosts[0] if "->" in hosts[0] else fold(hosts)
        stderr().print(clean(f"not read, so not compared: {', '.join(sources)} ({where})"), soft_wrap=True)
