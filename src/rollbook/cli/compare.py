"""`rollbook compare`: runs or groups of repeated runs side by side."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from rollbook.api.comparing import compare, open_sides
from rollbook.clean import clean
from rollbook.cli.configuration import results_directory
from rollbook.cli.options import Number
from rollbook.cli.output import sheet, stderr, width_of, wrapped
from rollbook.comparison.model import Comparison, Row
from rollbook.comparison.sides import too_slow
from rollbook.comparison.statistics import FLOOR
from rollbook.comparison.text import change_cell, fact_lines, folded_rows, interval_text, value_cell, verdict_cell
from rollbook.records.document import encode

__all__ = ["command"]

LONGEST = 60  # characters of a command


class Limit(click.ParamType[float]):
    """`slower:5%`, as a share."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The share, or a usage error."""
        match = re.fullmatch(r"(?:slower|worse):(\d+(?:\.\d+)?)\s*%", str(value))
        if not match:
            self.fail(f"{value!r} is not a limit; write slower:5%", param, ctx)
        return float(match[1]) / 100


@click.command("compare")
@click.argument("sides", nargs=-1, required=True, metavar="A B ...")
@click.option("--phase", default="", metavar="NAME", help="Phase whose metrics are compared [default: the command].")
@click.option(
    "--floor",
    type=Number(0, 100),
    default=100 * FLOOR,
    show_default=True,
    metavar="PERCENT",
    help="Differences of results below this do not matter.",
)
@click.option(
    "--fail-on",
    type=Limit(),
    metavar="slower:N%",
    help="Exit with 1 if a result is worse by more than N %. Without enough runs to test it, by more than 10 %, too.",
)
@click.option("--all", "everything", is_flag=True, help="Print all metrics, not only those that differ.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
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
    output: Path | None,
) -> None:
    """Compare runs: results, phases, metrics and changed facts of A with those of B and further sides.

    Each side is a RECORD, several separated by commas, the name of several records, a group of `run --repeat` by name
    or id, or a directory of records. Five runs a side, alternating, are a good number: from three on differences are
    tested, from four on with 95 % confidence. Exits with 1 only with --fail-on.
    """
    results = results_directory()
    opened = open_sides(sides, results)
    found = compare(*[list(side.runs) for side in opened], results_dir=results, phase=phase, floor=floor / 100)
    for summary, side in zip(found.sides, opened, strict=True):
        summary.label = side.label
    if output is not None:
        from rollbook.comparison.page import write_page  # noqa: PLC0415 - most comparisons are read in the terminal

        write_page(found, opened, output)
        stderr().print(f"written to {output}", soft_wrap=True)
    if as_json:
        click.echo(encode(found), nl=False)
    else:
        _show(found, everything=everything)
    slow = too_slow(found, fail_on) if fail_on is not None else []
    for line in slow:
        stderr().print(clean(line), style="red", soft_wrap=True)
    sys.exit(1 if slow else 0)


def _show(found: Comparison, *, everything: bool) -> None:
    console = Console(highlight=False)
    for at, side in enumerate(found.sides):
        runs = f"{len(side.records)} run{'s' * (len(side.records) != 1)}"
        command = side.command if len(side.command) <= LONGEST else f"{side.command[: LONGEST - 1]}…"
        click.echo(clean(f"{chr(65 + at)}  {side.label}  {runs}  {Path(side.records[-1]).parent.name}  {command}"))
    rows, rest = folded_rows(found, everything=everything)
    for number in range(1, len(found.sides)):
        click.echo()
        letter = chr(65 + number)
        cells = [_cells(row, number) for row in rows]
        shown = sheet(("", "A", letter, f"{letter} TO A", "INTERVAL", "VERDICT"), cells)
        if not sys.stdout.isatty():
            console.width = width_of(shown, console)  # a file or a pipe has no width to wrap at
        console.print(shown)
        if rest:
            click.echo(rest)
        click.echo(f"\nchanged facts, most likely explanation first ({letter} against A):")
        for line in fact_lines(found.facts[number - 1]):
            click.echo(wrapped(f"  {clean(line)}", sys.stdout, 4))
    for note in found.notes:
        stderr().print(wrapped(clean(f"note: {note}"), sys.stderr, 2), soft_wrap=True)


def _cells(row: Row, number: int) -> tuple[str, ...]:
    change = row.changes[number - 1]
    title = row.title
    if len(row.hosts) > number and row.hosts[number]:
        title = f"{title} ({row.hosts[number]})"
    return (
        title,
        value_cell(row.values[0], row.unit),
        value_cell(row.values[number], row.unit),
        change_cell(change),
        interval_text(change),
        verdict_cell(change),
    )
