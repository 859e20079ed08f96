"""The series as OpenMetrics text with timestamps, one family after the other, streamed whatever the size.

Counters are the kernel's own totals, not rates: that is what Prometheus and VictoriaMetrics expect. Both keep
milliseconds; of two samples of a host that are less than two apart, as the edge of a phase may give, the first is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

import duckdb

from rollbook.errors import RecordError
from rollbook.record.run import Run
from rollbook.series.families import LABELS, Column, families
from rollbook.series.store import connect
from rollbook.series.tables import about, quoted, text

__all__ = ["write_openmetrics"]

CHUNK = 10_000
# The characters that would end a line or a label's value, or what a reader takes for the end of the text.
UNSAFE = {"\\": "\\\\", '"': '\\"', "\n": "\\n"} | {
    chr(code): f"\\\\x{code:02x}" for code in (*range(1, 10), *range(11, 32), 127)
}
CLOSE = """CREATE TABLE close_beats AS SELECT host, ts FROM (
    SELECT host, ts, lag(ts) OVER (PARTITION BY host ORDER BY ts) AS before FROM (SELECT DISTINCT host, ts FROM {})
) WHERE epoch_ns(ts) - epoch_ns(before) < 2000000"""


def write_openmetrics(run: Run, path: Path) -> None:
    """Write the file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with connect(run) as connection, temporary.open("w", encoding="utf-8") as file:
            for part in _parts(connection, run):
                file.write(part)
            file.write("# EOF\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except (OSError, duckdb.Error) as error:
        temporary.unlink(missing_ok=True)
        raise RecordError(f"cannot write {path}: {error}") from error


def _parts(connection: duckdb.DuckDBPyConnection, run: Run) -> Iterator[str]:
    """The text of all families, in pieces."""
    files = {name: path for name, path in run.series_files().items() if name in catalogue.NAMES}
    notes = {name: about(connection, path.resolve()) for name, path in files.items()}
    tables = {name: _Table(connection, name, _labels(name, notes[name])) for name in files}
    for name, columns in families(notes).items():
        first = columns[0]
        yield f"# TYPE {name} {first.kind}\n# HELP {name} Column {_help(first.name)} of {first.table}.\n"
        for column in columns:
            yield from tables[column.table].lines(column)


class _Table:
    """One table of the record, written column by column in its own order, which is by host, key and time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, labels: Mapping[str, str]) -> None:
        self._connection, self._name = connection, name
        # What texts there are is asked once, so that each row pays only for what is truly in them.
        chosen = ", ".join(labels.values())
        rows = connection.execute(f"SELECT DISTINCT {chosen} FROM {quoted(name)}").fetchall()  # noqa: S608 - our own names
        present = set("".join(str(cell) for row in rows for cell in row))
        self._labels = {label: _escaped(value, present) for label, value in labels.items()}
        close = connection.execute(CLOSE.format(quoted(name)).replace("close_beats", quoted(f"{name} close")))
        del close

    def lines(self, column: Column) -> Iterator[str]:
        """The samples of one column, in pieces of many lines."""
