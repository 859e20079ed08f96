"""Export of a record's tables as Parquet, CSV or JSON."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from pathlib import Path

import duckdb

from rollbook.errors import RecordError, UsageError
from rollbook.files import BY_UMASK, atomic_path
from rollbook.records.record import Record
from rollbook.sql.connection import connect
from rollbook.tables.quoting import quoted, text
from rollbook.tables.reasons import UNREADABLE, reason_of

__all__ = ["FORMATS", "export", "safe"]

FORMATS = {
    "parquet": "FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd",
    "csv": "FORMAT csv, HEADER",
    "json": "FORMAT json, ARRAY true",
}
ALWAYS = ("rates", "hosts", "facts", "phases", "phase_stats", "gaps", "losses", "findings", "results")
FORMULA = "=+-@\t\r"  # first characters of what a spreadsheet takes for a formula
# Control, invisible and directional characters. Tabs and line ends stay.
INVISIBLE = (
    *((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F), (0xAD, 0xAD), (0x61C, 0x61C), (0x180E, 0x180E)),
    *((0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB)),
)
INVISIBLE_PATTERN = re.compile(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in INVISIBLE)}]")
INVISIBLE_SQL = "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in INVISIBLE) + "]"


def export(record: Record, form: str, output: Path, tables: Sequence[str] = ()) -> list[Path]:
    """Write tables and views into the directory `output`; returns the files.

    By default these are all tables of the series and `ALWAYS`.
    """
    chosen = list(tables) or [*record.series_files(), *ALWAYS]
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {output}: {error.strerror}") from error
    written = []
    with connect(record, output, whole=True, facts="facts" in chosen) as connection:
        known = {row[0] for row in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}
        for name in chosen:
            if name not in known:
                raise _no_table(name, known)
            path = output / f"{name}.{form}"
            body = _safe(connection, name) if form == "csv" else f"SELECT * FROM {quoted(name)}"  # noqa: S608 - quoted
            try:
                with atomic_path(path, mode=BY_UMASK) as temporary:
                    options = f"{FORMATS[form]}, USE_TMP_FILE false"
                    connection.execute(f"COPY ({body}) TO {text(temporary.resolve())} ({options})")
            except UNREADABLE as error:
                raise RecordError(f"cannot write {path}: {reason_of(error)}") from error
            written.append(path)
    return written


def _no_table(name: str, known: Collection[str]) -> UsageError:
    near = difflib.get_close_matches(name, known)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return UsageError(
        f"the record has no table called {name!r}{hint} (`rollbook query RECORD 'SHOW TABLES'` lists all)"
    )


def _safe(connection: duckdb.DuckDBPyConnection, table: str) -> str:
    """A query of the table with texts and column names that are safe in a spreadsheet and a terminal."""
    columns = []
    for name, kind, *_ in connection.execute(f"DESCRIBE {quoted(table)}").fetchall():
        value = f"CAST({quoted(name)} AS VARCHAR)" if kind.endswith("[]") else quoted(name)
        if kind == "VARCHAR" or kind.endswith("[]"):
            value = f"regexp_replace({value}, '{INVISIBLE_SQL}', '?', 'g')"
            value = (
                f"CASE WHEN left({value}, 1) IN ({', '.join(map(text, FORMULA))}) THEN '''' || {value} ELSE {value} END"
            )
        columns.append(f"{value} AS {quoted(safe(name))}")
    return f"SELECT {', '.join(columns)} FROM {quoted(table)}"  # noqa: S608 - quoted


def safe(cell: str) -> str:
    """A text that is safe in a spreadsheet and a terminal."""
    cell = INVISIBLE_PATTERN.sub("?", cell)
    return f"'{cell}" if cell[:1] and cell[0] in FORMULA else cell
