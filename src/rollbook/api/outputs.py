"""Reads a record: rows of a query, exports, the page, the description of the system."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollbook.api.arguments import check_arguments
from rollbook.api.checking import check_results, run_data_of
from rollbook.api.finish import open_record
from rollbook.api.listing import record_path
from rollbook.api.options import as_list
from rollbook.errors import RecordError, UsageError
from rollbook.exports.files import FORMATS
from rollbook.exports.files import export as export_tables
from rollbook.exports.openmetrics import write_openmetrics
from rollbook.exports.timeseries import write_timeseries
from rollbook.files import BY_UMASK, PRIVATE, output_path, require_utf8
from rollbook.mlperf.submission_page import write_submission_page
from rollbook.records.layout import require_outside, update_manifest
from rollbook.records.locate import MANIFEST
from rollbook.records.reading import require_own
from rollbook.records.record import Record
from rollbook.records.signing import is_signed
from rollbook.sql import connection as store
from rollbook.sql.damage import changed_tables

__all__ = ["EXPORT_FORMATS", "describe", "export", "query", "write_report"]

EXPORT_FORMATS = (*FORMATS, "timeseries", "openmetrics", "mlpstorage")


@check_arguments
def query(record: Record | Path | str, sql: str) -> list[dict[str, Any]]:
    """The rows of one SELECT over a record, with the tables and views of `rollbook query`.

    Columns must have different names. Raises `UsageError` for SQL that cannot be run; warns if a table was changed.
    """
    require_utf8(sql, "the SQL")
    opened = _opened(record)
    with store.connect(opened, facts=store.wants_facts(sql)) as connection:
        if changed := changed_tables(connection, opened, sql):
            warnings.warn(f"tables that do not match the manifest: {', '.join(changed)}", stacklevel=2)
        return list(store.dicts(store.query(connection, sql)))


@check_arguments
def export(
    record: Record | Path | str,
    output: Path | str,
    format: str = "parquet",  # noqa: A002 - the name of the option
    tables: str | Sequence[str] = (),
) -> list[Path]:
    """Write a record in one of `EXPORT_FORMATS`; returns the files.

    `output` is a directory with one file per table; for timeseries and openmetrics it is the file. `tables` selects
    tables or views (default: all tables of the series, rates, hosts, facts, phases, phase_stats, gaps, losses, findings
    and results). Nothing is written into the record itself.
    """
    opened, path = _opened(record), Path(output)
    require_utf8(path.absolute(), "the path of the output")
    require_outside(opened.path, path)
    if format in FORMATS:
        return export_tables(opened, format, path, as_list(tables))
    if format not in EXPORT_FORMATS:
        raise UsageError(f"unknown format {format!r}; available: {', '.join(EXPORT_FORMATS)}")
    if tables:
        raise UsageError(f"tables cannot be selected for {format}")
    if format == "mlpstorage":
        from rollbook.mlperf.export import export_mlpstorage  # noqa: PLC0415 - few exports are for its readers

        return list(export_mlpstorage(opened, path))
    if not any(host.samples for host in opened.hosts.series):
        raise RecordError(f"{opened.path} has no samples to write")
    with output_path(path) as file:
        if format == "timeseries":
            write_timeseries(opened, file, mode=BY_UMASK)
        else:
            write_openmetrics(opened, file)
    return [path]


@check_arguments
def write_report(record: Record | Path | str, output: Path | str | None = None) -> Path:
    """Write the page of a record as one HTML file, by default `report.html` in the record; returns the file.

    The page inside a signed record cannot be replaced, because it is part of what was signed: `UsageError`. Nothing is
    written into a record of another user: `RecordError`. For a results directory of MLPerf Storage it is the page of
    its verdicts, and `output` must be given.
    """
    from rollbook.report import write_report as write  # noqa: PLC0415 - most readers do not need the page

    if not isinstance(record, Record):
        record = record_path(record)
    if not isinstance(record, Record) and (found := check_results(record)):
        if output is None:
            raise UsageError(f"{record} is a results directory: name the file to write with -o")
        with output_path(Path(output)) as file:
            write_submission_page(found, file)
        return Path(output)
    opened = _opened(record)
    own = opened.path / "report.html"
    path = own if output is None else Path(output)
    if path.resolve() == own.resolve():
        require_own(opened.path, "write the page elsewhere")
        if is_signed(opened.path):
            raise UsageError(
                f"{opened.path} is signed; replacing its page would invalidate the signature: write the page elsewhere"
            )
        write(opened, own, mode=PRIVATE)
        if (opened.path / MANIFEST).exists():
            update_manifest(opened.path, own.name)
    else:
        require_outside(opened.path, path)
        with output_path(path) as file:
            write(opened, file, mode=BY_UMASK)
    return path


@check_arguments
def describe(record: Path | str, product: Path | str | None = None) -> str:
    """The MLPerf Storage description of the recorded system, as YAML, from a record or a snapshot file.

    `product` is a record or snapshot of the storage nodes. Values that a person must fill in are null and marked.
    """
    from rollbook.mlperf.describe import draft, text_of  # noqa: PLC0415 - most readers do not need it

    path, other = record_path(record), record_path(product) if product else None
    return text_of(draft(run_data_of(path), run_data_of(other) if other else None), path)


def _opened(record: Record | Path | str) -> Record:
    return record if isinstance(record, Record) else open_record(record)
