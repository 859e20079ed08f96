"""`rollbook report`: the offline HTML page of a record."""

from __future__ import annotations

from pathlib import Path

import click

from rollbook.cli.output import size, stderr
from rollbook.errors import UsageError
from rollbook.records.layout import must_lie_outside, relist
from rollbook.records.signing import signature_file

__all__ = ["command"]


@click.command("report")
@click.argument("record", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write the page; without, report.html in the record.",
)
def command(record: Path, output: Path | None) -> None:
    """Write the page of RECORD: one HTML file that opens anywhere, without a network.

    Works for any record, also one that is partial or was recovered: what is missing is shown as missing. The page of a
    record that is signed cannot be replaced, only written elsewhere.
    """
    from rollbook.api.finish import open_record  # noqa: PLC0415 - DuckDB takes its time to import
    from rollbook.report import write_report  # noqa: PLC0415

    run, own, manifest = open_record(record), record / "report.html", record / "manifest.json"
    path = output or own
    in_place = path.resolve() == own.resolve()
    if not in_place:
        must_lie_outside(record, path)
    listed = in_place and manifest.exists()
    if listed and signature_file(manifest).exists():
        raise UsageError(f"{record} is signed, and a new page would be none of what was signed: write it with -o")
    write_report(run, path)
    if listed:
        relist(record, own.name)
    stderr().print(f"written to {path} ({size(path.stat().st_size)})", soft_wrap=True)
