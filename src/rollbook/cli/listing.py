"""`rollbook list`: the records of a results directory, newest first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click
from rich.console import Console

from rollbook.api.listing import list_records, no_records
from rollbook.clean import shorten
from rollbook.cli.configuration import results_directory
from rollbook.cli.options import Command, json_option
from rollbook.cli.output import make_table, print_json, print_table, stderr, table_width
from rollbook.errors import RecordError
from rollbook.metrics.formatting import duration
from rollbook.records.summary import RecordList, RecordSummary, State, Verdict

__all__ = ["command"]

HEADINGS = ("RECORD", "NAME", "TIME", "HOSTS", "VERDICT", "TAGS")
VERDICTS, STATES = get_args(Verdict), [state for state in get_args(State) if state != "complete"]
MAX_TEXT = 40  # characters of a command, a note or the reason of a broken record


@click.command("list", cls=Command)
@click.argument("directory", required=False, metavar="[DIR]", type=click.Path(path_type=Path))
@click.option("--type", "kind", default="", metavar="NAME", help="Only records of this type, such as fio.")
@click.option("--host", default="", metavar="HOST", help="Only records with this host.")
@click.option(
    "--verdict",
    default="",
    metavar="VERDICT",
    help=f"Only records with this verdict or state: {', '.join(VERDICTS)}; {', '.join(STATES)}; "
    "MLPerf Storage's CLOSED, OPEN or INVALID.",
)
@click.option("--name", default="", metavar="NAME", help="Only records with this name.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only records with this tag; may be repeated.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    metavar="N",
    help="Maximum number of records to list; 0: all.",
)
@json_option
def command(
    directory: Path | None,
    *,
    kind: str,
    host: str,
    verdict: str,
    name: str,
    tags: tuple[str, ...],
    limit: int,
    as_json: bool,
) -> None:
    """List the records in DIR, newest first [default: the configured results directory].

    Records that are being recorded, unfinished or broken are listed with their state and the reason. Times are in UTC.
    """
    results = directory or results_directory()
    try:
        found = list_records(results, limit=limit, type=kind, host=host, verdict=verdict, name=name, tags=tags)
    except RecordError:
        if directory is not None or results.exists():
            raise
        found = RecordList(results_dir=str(results), records=[])  # nothing was recorded yet
    if as_json:
        print_json(found)
        return
    if found.records:
        has_notes = any(one.reason or one.note for one in found.records)
        last = "COMMAND OR NOTE" if has_notes else "COMMAND"
        _table((*HEADINGS, last), [_cells(one, results) for one in found.records])
    else:
        is_filtered = any((kind, host, verdict, name, tags))
        stderr().print(f"no records in {results} match" if is_filtered else no_records(results), soft_wrap=True)
    if found.omitted:
        stderr().print(f"{found.omitted} more; --limit 0 lists all")


def _cells(one: RecordSummary, results: Path) -> tuple[str, ...]:
    hosts = "" if one.hosts is None else str(one.hosts)
    if one.hosts_complete is not None and one.hosts_complete != one.hosts:
        hosts = f"{one.hosts_complete} of {one.hosts}"
    name = one.name
    if one.group is not None:
        name = f"{name} {one.group.index}/{one.group.size}".strip()
    verdict: str = one.verdict if one.state == "complete" else one.state
    if one.verdict == "command-failed":
        verdict = f"exit {one.exit_code}"
    if one.verification:
        verdict = f"{verdict}, {one.verification}"
    path = Path(one.path)
    return (
        str(path.relative_to(results) if path.is_relative_to(results) else path),
        name,
        "" if one.seconds is None else duration(one.seconds),
        hosts,
        verdict,
        " ".join(one.tags),
        " ".join((one.reason or one.note or one.command).split()),
    )


def _table(headings: Sequence[str], rows: list[tuple[str, ...]]) -> None:
    """Print the rows without columns that are empty in all of them; on a terminal the last one is cut to fit."""
    *used, last = [at for at in range(len(headings)) if any(row[at] for row in rows)]
    console, room = Console(highlight=False), MAX_TEXT
    if sys.stdout.isatty():
        others = make_table([headings[at] for at in used], [[row[at] for at in used] for row in rows])
        room = max(len(headings[last]), console.width - table_width(others, console) - 1)
    cells = [[*(row[at] for at in used), shorten(row[last], room)] for row in rows]
    print_table([headings[at] for at in (*used, last)], cells)
