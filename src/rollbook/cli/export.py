"""`rollbook export`: write a record in another format."""

from __future__ import annotations

from pathlib import Path

import click

from rollbook.api.outputs import EXPORT_FORMATS, export
from rollbook.cli.options import OUTPUT, Command, option
from rollbook.cli.output import stderr
from rollbook.cli.record_argument import RecordPath
from rollbook.errors import UsageError
from rollbook.exports.files import FORMATS

__all__ = ["command"]


@click.command("export", cls=Command)
@click.argument("record", type=RecordPath())
@option(
    "--format",
    "output_format",
    heading=OUTPUT,
    type=click.Choice(EXPORT_FORMATS),
    default="parquet",
    show_default=True,
    help=f"{', '.join(FORMATS)}: one file per table; openmetrics: for Prometheus and compatible databases; timeseries: "
    "MLPerf Storage's timeseries.json; mlpstorage: all files that its tools read.",
)
@option(
    "-o",
    "--output",
    heading=OUTPUT,
    type=click.Path(path_type=Path),
    required=True,
    metavar="PATH",
    help="Directory to write to; for timeseries and openmetrics, the file.",
)
@click.option(
    "--table", "tables", multiple=True, metavar="NAME", help="Export this table or view only; may be repeated."
)
def command(record: Path, output_format: str, output: Path, tables: tuple[str, ...]) -> None:
    """Write RECORD in another format. Cells of CSV files are escaped so that spreadsheets do not run formulas.

    parquet, csv and json have all sampled tables (diskstats, net_dev, …), and rates, hosts, facts, phases, phase_stats,
    gaps, losses, findings and results. --table also accepts every other view of `rollbook query`.
    """
    if str(output) == "-":
        raise UsageError("export cannot write to stdout; use `rollbook query` for that")
    for path in export(record, output, output_format, tables):
        stderr().print(f"written to {path}", soft_wrap=True)
