"""`rollbook query`: run SQL over a record."""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import duckdb
import msgspec

from rollbook.api.finish import open_record
from rollbook.api.listing import summaries
from rollbook.clean import clean, count_text
from rollbook.cli.configuration import results_directory
from rollbook.cli.options import OUTPUT, Command, option
from rollbook.cli.output import print_table, stderr
from rollbook.cli.record_argument import find
from rollbook.cli.streams import end_with_reader
from rollbook.errors import ExitCode, RollbookError, UsageError
from rollbook.exports.files import safe
from rollbook.files import require_utf8
from rollbook.metrics import catalogue as metrics
from rollbook.records.document import escaped
from rollbook.sql import connection as store
from rollbook.sql.all_runs import AllRecords, connect_all
from rollbook.sql.damage import changed_tables

__all__ = ["command", "print_rows", "warn_of"]

MAX_ROWS = 1000  # rows printed with --format table


class QueryCommand(Command):
    """A command whose help names the views of devices, `{views}` in its docstring: metrics of plug-ins add some."""

    @property
    def help(self) -> str:
        """The help. If a plug-in cannot be used, only built-in views are named; the query itself reports the error."""
        try:
            found = tuple(metrics.load().values())
        except RollbookError:
            found = metrics.METRICS
        views = dict.fromkeys(metric.devices for metric in found if metric.devices)
        return self._help.format(views=", ".join(views))

    @help.setter  # noqa: A003 - click's name
    def help(self, text: str) -> None:
        self._help = text


@click.command("query", cls=QueryCommand)
@click.argument("words", nargs=-1, required=True, metavar="[RECORD] SQL")
@click.option(
    "--all",
    "all_records",
    is_flag=True,
    help="Query all records of a results directory: the one given in place of RECORD, or the configured one.",
)
@option(
    "--format",
    "output_format",
    heading=OUTPUT,
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="A table, CSV, or one JSON object per line.",
)
def command(words: tuple[str, ...], output_format: str, *, all_records: bool) -> None:
    """Run one SELECT over RECORD and print the result; with --all, over all records of a results directory.

    Tables: one per sampled source (diskstats, net_dev, stat, meminfo, …), and NAME_rates with its counters per second;
    samples and rates with one row per host and sample; metrics per device in {views}; hosts, facts, phases, gaps,
    losses, findings, results, phase_stats. `SHOW TABLES` lists them, `DESCRIBE rates` the columns of one.

    With --all: runs with one row per record, and all tables above with the rows of all records and a column `run`.
    Only tables that the query names are opened. A record that cannot be read is left out with a warning, and the exit
    code is 3.
    """
    if len(words) > 2 or (len(words) < 2 and not all_records):
        raise UsageError("give a RECORD and one SQL statement in quotes; with --all, the record can be omitted")
    end_with_reader()
    sql = words[-1]
    require_utf8(sql, "the SQL")
    opened = _open_all(words[:-1], sql) if all_records else AllRecords(_open(words[0], sql), [])
    with opened.connection as connection:
        print_rows(connection, sql, output_format)
    sys.exit(warn_of(opened.problems))


def print_rows(connection: duckdb.DuckDBPyConnection, sql: str, output_format: str) -> None:
    """Run one SELECT and print its rows as a table, CSV, or one JSON object per line; raises `UsageError`."""
    found = store.query(connection, sql)
    names = [column[0] for column in found.description or []]
    if output_format == "json":
        encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="number")
        for row in store.dicts(found):
            click.echo(escaped(encoder.encode(row)))
    elif output_format == "csv":
        writer, shown = csv.writer(sys.stdout), clean if sys.stdout.isatty() else str
        rows = store.rows(found)
        first = list(itertools.islice(rows, 1))  # if it cannot be read, not even the names are printed
        writer.writerow([safe(shown(name)) for name in names])
        cells = itertools.chain(first, rows)
        writer.writerows([safe(shown(cell)) if isinstance(cell, str) else cell for cell in row] for row in cells)
    else:
        _table(names, store.rows(found))


def warn_of(problems: Sequence[str]) -> int:
    """Print a warning for each problem with the queried tables; returns the exit code."""
    for line in problems:
        stderr().print(f"warning: {clean(line)}", soft_wrap=True)
    return ExitCode.INCOMPLETE if problems else ExitCode.SUCCESS


def _open(record: str, sql: str) -> duckdb.DuckDBPyConnection:
    opened = open_record(find(record))
    connection = store.connect(opened, facts=store.wants_facts(sql))
    for name in changed_tables(connection, opened, sql):
        stderr().print(f"warning: the table {clean(name)} does not match the manifest; see rollbook verify")
    return connection


def _open_all(directory: tuple[str, ...], sql: str) -> AllRecords:
    results = Path(directory[0]) if directory else results_directory()
    return connect_all(results, summaries(results), sql)


def _table(names: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    """Print the first rows as a table or, if that is wider than the terminal, each row as lines of name and value."""
    cells = [[_cell(cell) for cell in row] for row in itertools.islice(rows, MAX_ROWS)]
    more = sum(1 for _ in rows)
    print_table(names, cells)
    if not cells:
        stderr().print("no rows")
    if more:
        stderr().print(f"{count_text(more, 'more row')}; --format csv or json prints them all")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return clean(value)
    # No exponents where a person has to count digits.
    return f"{value:.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:.6g}"
