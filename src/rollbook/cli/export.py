"""`rollbook export`: a record in other forms."""

from __future__ import annotations

from pathlib import Path

import click

from rollbook.api.outputs import FORMS, export
from rollbook.cli.output import stderr

__all__ = ["command"]


@click.command("export")
@click.argument("record", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default="parquet",
    show_default=True,
    help="Tables as Parquet, CSV or JSON; OpenMetrics for Prometheus and its kin; MLPerf Storage's timeseries.json; or "
    "mlpstorage: all files that its readers look for.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PATH",
    help="A directory, one file per table; for timeseries and openmetrics the file.",
)
@click.option("--table", "tables", multiple=True, metavar="NAME", help="Only these tables or views; may be repeated.")
def command(record: Path, form: str, output: Path, tables: tuple[str, ...]) -> None:
    """Write RECORD's series in another form. Cells of CSV files are never taken for formulas."""
    for path in export(record, output, form, tables):
        stderr().print(f"written to {path}", soft_wrap=True)
