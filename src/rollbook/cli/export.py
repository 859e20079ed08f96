"""`rollbook export`: a record in other forms."""

from __future__ import annotations

from pathlib import Path

import click

from rollbook.api.finish import open_record
from rollbook.cli.output import stderr
from rollbook.errors import UsageError
from rollbook.series.export import FORMATS, export
from rollbook.series.openmetrics import write_openmetrics
from rollbook.series.timeseries import write_timeseries

__all__ = ["command"]


@click.command("export")
@click.argument("record", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS, "timeseries", "openmetrics", "mlpstorage"]),
    default="parquet",
    show_default=True,
    help="Tables as Parquet, CSV or JSON; OpenMetrics for Prometheus and its kin; or MLPerf Storage's timeseries.json.",
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
    run = open_record(record)
    if form == "mlpstorage":
        from rollbook.mlpstorage import export_mlpstorage  # noqa: PLC0415 - few exports are for its readers

        for path in export_mlpstorage(run, output):
            stderr().print(f"written to {path}", soft_wrap=True)
        return
    if form in ("timeseries", "openmetrics"):
        if tables:
            raise UsageError(f"--table does not go with --format {form}")
        (write_timeseries if form == "timeseries" else write_openmetrics)(run, output)
        stderr().print(f"written to {output}", soft_wrap=True)
        return
    for path in export(run, form, output, tables):
        stderr().print(f"written to {path}", soft_wrap=True)
