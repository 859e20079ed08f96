"""`rollbook compare`: runs or groups of repeated runs side by side."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click

from rollbook.api.comparing import compare_opened, open_sides
from rollbook.api.listing import summary_of
from rollbook.clean import clean, count_text, shorten
from rollbook.cli.configuration import results_directory
from rollbook.cli.options import OUTPUT, Command, Number, file_option, json_option, option
from rollbook.cli.output import print_json, print_table, stderr, wrapped
from rollbook.comparison.limits import judge
from rollbook.comparison.model import Comparison, letter_of
from rollbook.comparison.statistics import FLOOR
from rollbook.comparison.text import fact_lines, folded_rows, headline, row_cells
from rollbook.errors import ExitCode, UsageError
from rollbook.files import output_path, require_utf8
from rollbook.records.layout import require_outside

__all__ = ["command"]

MAX_COMMAND = 60  # characters of a command


class Limit(click.ParamType[float]):
    """`slower:5%`, as a share."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The share, or a usage error."""
        match = re.fullmatch(r"(?:slower|worse):(\d+(?:\.\d+)?)\s*%", str(value))
        if not match:
            self.fail(f"{value!r} is not a limit; write slower:5%", param, ctx)
        return float(match[1]) / 100


@click.command("compare", cls=Command)
@click.argument("sides", nargs=-1, required=True, metavar="A B ...")
@click.option(
    "--phase", default="", metavar="NAME", help="Phase whose metrics are compared [default: the whole command]."
)
@click.option(
    "--floor",
    type=Number(0, 100),
    default=100 * FLOOR,
    show_default=True,
    metavar="PERCENT",
    help="Ignore differences of results below this.",
)
@click.option(
    "--fail-on",
    type=Limit(),
    metavar="slower:N%",
    help="Exit with 1 if a main result is worse by more than N % (and, with too few runs to test, by more than 10 %), "
    "with 3 if the data is not sufficient to decide.",
)
@click.option("--all", "everything", is_flag=True, help="Print all metrics, not only those that differ.")
@json_option
@click.option("--query", "sql", metavar="SQL", help="Run one SELECT over the compared records and print the result.")
@option(
    "--format",
    "output_format",
    heading=OUTPUT,
    type=click.Choice(["table", "csv", "json"]),
    help="With --query: a table (default), CSV, or one JSON object per line.",
)
@file_option(
    "-o",
    "--output",
    help="Write a page with aligned charts of all runs: one HTML file that works without a network.",
)
def command(
    sides: tuple[str, ...],
    *,
    phase: str,
    floor: float,
    fail_on: float | None,
    everything: bool,
    as_json: bool,
    sql: str | None,
    output_format: str | None,
    output: Path | None,
) -> None:
    """Compare runs: results, phases, metrics and changed facts of A with those of B and further sides.

    Each side is a RECORD, several separated by commas, the name of several records, a group of `run --repeat` by name
    or id, or a directory of records. Differences are tested if each side has at least two runs; use five per side, and
    alternate between the sides. Exits with 1 only with --fail-on; 3 can also mean that --query had to leave
    out a record.

    Tables for --query: sides, comparison and changed_facts contain what is printed without --query; all tables of
    `rollbook query --all` (runs, results, phase_stats, facts, rates, …) contain the compared records.
    """
    if output_format and sql is None:
        raise UsageError("--format needs --query; --json prints the comparison")
    if as_json and sql is not None:
        raise UsageError("--json cannot be combined with --query; use --format json")
    if sql is not None:
        require_utf8(sql, "the SQL")
    results = results_directory()
    opened = open_sides(sides, results)
    if output is not None:
        for side in opened:
            for run in side.runs:
                require_outside(run.path, output)
    found = compare_opened(opened, results_dir=results, phase=phase, floor=floor / 100)
    if output is not None:
        from rollbook.comparison.page import write_page  # noqa: PLC0415 - most comparisons are read in the terminal

        with output_path(output) as file:
            write_page(found, opened, file)
        stderr().print(f"written to {output}", soft_wrap=True)
    code = 0
    if sql is not None:
        code = _query(found, results, sql, output_format or "table")
    elif as_json:
        print_json(found)
    else:
        _show(found, everything=everything)
    sys.exit((_judge(found, fail_on) if fail_on is not None else 0) or code)


def _query(found: Comparison, results: Path, sql: str, output_format: str) -> int:
    from rollbook.cli.query import print_rows, warn_of  # noqa: PLC0415 - DuckDB is slow to import
    from rollbook.comparison.tables import comparison_tables  # noqa: PLC0415
    from rollbook.sql.all_runs import connect_all  # noqa: PLC0415

    records = [summary_of(Path(path)) for side in found.sides for path in side.records]
    opened = connect_all(results, records, sql, comparison_tables(found, results))
    with opened.connection as connection:
        print_rows(connection, sql, output_format)
    return warn_of(opened.problems)


def _judge(found: Comparison, limit: float) -> int:
    """Print the results that break a limit or may break it; returns the exit code."""
    judged = judge(found, limit)
    for line in judged.slower:
        stderr().print(clean(line), style="red", soft_wrap=True)
    for line in judged.unsure:
        stderr().print(f"cannot tell: {clean(line)}", soft_wrap=True)
    if judged.slower:
        return ExitCode.FINDINGS
    return ExitCode.INCOMPLETE if judged.unsure else ExitCode.SUCCESS


def _show(found: Comparison, *, everything: bool) -> None:
    _show_sides(found)
    for number in range(1, len(found.sides)):
        rows, rest = folded_rows(found, number - 1, everything=everything)
        click.echo()
        click.echo(wrapped(clean(headline(found, number - 1)), sys.stdout, 2))
        letter = letter_of(number)
        cells = [row_cells(row, number - 1) for row in rows]
        if cells:
            print_table(("", "A", letter, f"{letter} VS A", "INTERVAL", "VERDICT"), cells, wrap=True)
        if rest:
            click.echo(rest)
        click.echo(f"\nchanged facts, most likely explanation first ({letter} against A):")
        for line in fact_lines(found.facts[number - 1]):
            click.echo(wrapped(f"  {clean(line)}", sys.stdout, 4))
    for note in found.notes:
        stderr().print(wrapped(clean(f"note: {note}"), sys.stderr, 2), soft_wrap=True)


def _show_sides(found: Comparison) -> None:
    """Print a line per side in aligned columns: letter, label, runs, type, command of the first run."""
    rows = []
    for at, side in enumerate(found.sides):
        runs = count_text(len(side.records), "run")
        command = shorten(" ".join(side.command.split()), MAX_COMMAND)
        rows.append([clean(cell) for cell in (letter_of(at), side.label, runs, side.type, command)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
