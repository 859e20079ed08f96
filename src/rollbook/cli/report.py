"""`rollbook report`: write the offline HTML page of a record."""

from __future__ import annotations

from pathlib import Path

import click

from rollbook.cli.output import size, stderr
from rollbook.cli.record_argument import RecordPath

__all__ = ["command"]


@click.command("report")
@click.argument("record", type=RecordPath())
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to write [default: report.html in the record].",
)
def command(record: Path, output: Path | None) -> None:
    """Write the page of RECORD: one HTML file that works without a network.

    Works for partial and recovered records too: missing data is shown as missing. The page inside a signed record
    cannot be replaced; write it elsewhere with -o.
    """
    from rollbook.api.outputs import write_report  # noqa: PLC0415 - DuckDB is slow to import

    path = write_report(record, output)
    stderr().print(f"written to {path} ({size(path.stat().st_size)})", soft_wrap=True)
