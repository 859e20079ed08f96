"""A record read as a program reads it: rows of a query, other forms, the page, the description of its system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollbook.api.checking import run_data_of
from rollbook.api.finish import open_record
from rollbook.api.options import as_list
from rollbook.errors import RecordError, UsageError
from rollbook.exports.files import FORMATS
from rollbook.exports.files import export as export_tables
from rollbook.exports.openmetrics import write_openmetrics
from rollbook.exports.timeseries import write_timeseries
from rollbook.records.layout import must_lie_outside, relist
from rollbook.records.record import Record
from rollbook.records.signing import signature_file
from rollbook.sql import connection as store

__all__ = ["FORMS", "describe", "export", "query", "write_report"]

FORMS = (*FORMATS, "timeseries", "openmetrics", "mlpstorage")


def query(record: Record | Path | str, sql: str) -> list[dict[str, Any]]:
    """The rows that one SELECT over a record gives; tables and views are those of `rollbook query`.

    Columns must have different names.
    """
    with store.connect(_run(record), facts=store.wants_facts(sql)) as connection:
        return list(store.dicts(store.query(connection, sql)))


def export(
    record: Record | Path | str, output: Path | str, form: str = "parquet", tables: str | Sequence[str] = ()
) -> list[Path]:
    """Write a record in another form, one of `FORMS`; gives the files.

    `output` is a directory, one file per table, and for timeseries and openmetrics the file. `tables` chooses a table
    or view, or several, all of the series by default. Nothing is written into the record itself.
    """
    run, path = _run(record), Path(output)
    must_lie_outside(run.path, path)
    if form in FORMATS:
        return export_tables(run, form, path, as_list(tables))
    if form not in FORMS:
        raise UsageError(f"no form is called {form!r}; there are {', '.join(FORMS)}")
    if tables:
        raise UsageError(f"tables cannot be chosen for {form}")
    if form == "mlpstorage":
        from rollbook.mlperf.export import export_mlpstorage  # noqa: PLC0415 - few exports are for its readers

        return list(export_mlpstorage(run, path))
    if not any(host.samples for host in run.hosts.series):
        raise RecordError(f"{run.path} has no samples to write")
    (write_timeseries if form == "timeseries" else write_openmetrics)(run, path)
    return [path]


def write_report(record: Record | Path | str, output: Path | str | None = None) -> Path:
    """Write the page of a record, one HTML file; without `output` its own `report.html`. Gives the file.

    The page of a record that is signed cannot be replaced, only written elsewhere.
    """
    from rollbook.report import write_report as write  # noqa: PLC0415 - few who read a record want its page

    run = _run(record)
    own, manifest = run.path / "report.html", run.path / "manifest.json"
    path = own if output is None else Path(output)
    in_place = path.resolve() == own.resolve()
    if not in_place:
        must_lie_outside(run.path, path)
    elif manifest.exists() and signature_file(manifest).exists():
        raise UsageError(f"{run.path} is signed, and a new page would be none of what was signed: write it elsewhere")
    write(run, path)
    if in_place and manifest.exists():
        relist(run.path, own.name)
    return path


def describe(record: Path | str, product: Path | str | None = None) -> str:
    """The MLPerf Storage description of the system a record or snapshot file is of, as YAML.

    `product` is a record or snapshot of the storage's own nodes. What a person must fill in is null, and says so.
    """
    from rollbook.mlperf.describe import draft, text_of  # noqa: PLC0415 - few want it

    return text_of(draft(run_data_of(Path(record)), run_data_of(Path(product)) if product else None), Path(record))


def _run(record: Record | Path | str) -> Record:
    return record if isinstance(record, Record) else open_record(record)
