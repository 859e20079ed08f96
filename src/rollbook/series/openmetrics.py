"""The series as OpenMetrics text with timestamps, one family after the other, streamed whatever the size.

Counters are the kernel's own totals, not rates: that is what Prometheus and VictoriaMetrics expect. Both keep
milliseconds; of two samples of a host less than two apart, as the edge of a phase may give, only the first is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb

from rollbook.errors import RecordError
from rollbook.record.run import Run
from rollbook.series.families import LABELS, Column, families
from rollbook.series.store import connect
from rollbook.series.tables import about, quoted, text
from rollbook.sources import catalogue

__all__ = ["write_openmetrics"]

CHUNK = 10_000
# What would end a label's value or its line, or what readers take for the end of the text. The order matters.
UNSAFE = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
UNSAFE |= {chr(code): f"\\\\x{code:02x}" for code in (*range(10), *range(11, 32), 127)}
CLOSE = """CREATE TABLE {} AS SELECT host, ts FROM (
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
    tables = {name: _Table(connection, name, notes[name]) for name in files}
    for name, columns in families(notes).items():
        lines = (line for column in columns for line in tables[column.table].lines(column))
        first = next(lines, "")
        if first:
            told = " ".join(dict.fromkeys(re.sub(r"[^\w. ]", "?", f"{one.table}.{one.name}") for one in columns))
            yield f"# TYPE {name} {columns[0].kind}\n# HELP {name} From {told}.\n{first}"
            yield from lines


class _Table:
    """One table of the record, written column by column in its own order, which is by host, key and time."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, name: str, notes: Mapping[str, tuple[str, str]]) -> None:
        self._connection, self._name = connection, name
        keys = [column for column, (mode, _) in notes.items() if mode == "key"]
        labels = {"host": "host", **LABELS.get(name, {key: quoted(key) for key in keys})}
        # Which texts there are is asked once, so that each line pays only for what is truly in them.
        asked = f"SELECT DISTINCT {', '.join(labels.values())} FROM {quoted(name)}"  # noqa: S608 - our own names
        present = {letter for row in connection.execute(asked).fetchall() for cell in row for letter in str(cell)}
        self._labels = {label: _escaped(value, present) for label, value in labels.items()}
        close = quoted(f"{name} close")
        connection.execute(CLOSE.format(close, quoted(name)))
        some = connection.execute(f"SELECT 1 FROM {close} LIMIT 1").fetchone()  # noqa: S608 - our own name
        self._but = f"ANTI JOIN {close} close ON kept.host = close.host AND kept.ts = close.ts" if some else ""

    def lines(self, column: Column) -> Iterator[str]:
        """The samples of one column, in pieces of many lines."""
        labels = {"host": self._labels["host"]} if column.keyless else dict(self._labels)
        labels |= {label: text(value) for label, value in column.labels}
        parts = [text(f"{column.metric}{{")]
        for number, (label, value) in enumerate(labels.items()):
            parts += [text(f'{"," if number else ""}{label}="'), value, "'\"'"]
        value = quoted(column.name)
        if column.factor > 1:
            value = f"{value} * {column.factor}::HUGEINT"
        elif column.divisor > 1:
            value = f"{value} / {column.divisor}"
        chosen = ", ".join([*parts, "'} '", value, "' '", "epoch_ms(ts) / 1000"])
        found = self._connection.execute(
            f"SELECT concat({chosen}) FROM {quoted(self._name)} kept {self._but} "  # noqa: S608 - quoted
            f"WHERE {quoted(column.name)} IS NOT NULL {f'AND {column.where}' if column.where else ''}"
        )
        while rows := found.fetchmany(CHUNK):
            yield "".join([f"{row[0]}\n" for row in rows])


def _escaped(value: str, present: set[str]) -> str:
    """SQL that makes a text fit for a label, given the letters that are in any of them."""
    for unsafe, instead in UNSAFE.items():
        if unsafe in present:
            value = f"replace({value}, chr({ord(unsafe)}), {text(instead)})"
    return value
