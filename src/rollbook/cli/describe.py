"""`rollbook describe`: draft the MLPerf Storage system description from a record."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rollbook.api.checking import run_data_of
from rollbook.clean import clean
from rollbook.cli.options import Command, file_option
from rollbook.cli.output import stderr
from rollbook.cli.record_argument import RecordPath
from rollbook.files import BY_UMASK, output_path, write_file
from rollbook.mlperf.describe import draft, merge_existing, text_of, to_do
from rollbook.records.layout import require_outside
from rollbook.records.locate import locate_record
from rollbook.records.yaml import read_yaml

__all__ = ["command"]


@click.command("describe", cls=Command)
@click.argument("record", type=RecordPath())
@file_option(
    "-o",
    "--output",
    help="File to write [default: stdout]. An existing FILE is kept; its completed copy is written to FILE.new.",
)
@click.option("--product", type=RecordPath(), metavar="RECORD", help="Record or snapshot of the storage nodes.")
def command(record: Path, *, output: Path | None, product: Path | None) -> None:
    """Draft the description of the system under test from RECORD.

    Clients are grouped by type, each value with its origin. Values that a person must fill in are listed on stderr.
    Exits with 1 if an existing FILE disagrees with the record.
    """
    if output is not None:
        for described in filter(None, (record, product)):
            require_outside(locate_record(described), output)
    tree = draft(run_data_of(record), run_data_of(product) if product else None)
    lines: list[str] = []
    if output is not None and output.is_file():
        tree, lines = merge_existing(read_yaml(output), tree)
        output = output.with_name(f"{output.name}.new")
    text = text_of(tree, record)
    if output is None:
        click.echo(text, nl=False)
    else:
        with output_path(output) as file:
            write_file(file, text.encode(), mode=BY_UMASK)
    console = stderr()
    for line in lines:
        console.print(f"differs  {clean(line)}", soft_wrap=True)
    for line in to_do(tree):
        console.print(f"to do    {clean(line)}", soft_wrap=True)
    if output is not None:
        console.print(f"written to {clean(output)}", soft_wrap=True)
    sys.exit(1 if lines else 0)
