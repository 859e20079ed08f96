"""Export of the series as OpenMetrics text with timestamps, one family after the other, streamed.

Counters are the kernel's own totals, not rates, as Prometheus and VictoriaMetrics expect. Both store milliseconds: of
two samples of a host less than two milliseconds apart, as at the edge of a phase, only the first is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb

from rollbook.errors import RecordError
from rollbook.exports.families import LABELS, Column, families
from rollbook.files import BY_UMASK, atomic_file
from rollbook.metrics import catalogue as metrics
from rollbook.records.record import Record
from rollbook.sql.connection import connect, readable
from rollbook.sql.damage import replaced_tables
from rollbook.tables.parquet import about
from rollbook.tables.quoting import quoted, text

__all__ = ["write_openmetrics"]

CHUNK = 10_000
HELD = 200_000  # lines in memory: that many samples are read at once, of as many columns of a table as possible
# Characters that would end a label's value or its line, or that readers take for the end of the text.
CONTROLS = {chr(code): f"\\\\x{code:02x}" for code in (*range(10), *range(11, 32), 127)}
UNSAFE = {'"': '\\"', "\n": "\\n", **CONTROLS}
CLOSE_NS = 2_000_000


def write_openmetrics(record: Record, path: Path) -> None:
    """Write the file atomically; raises `RecordError`."""
    with readable(record), connect(record, wanted=()) as connection, atomic_file(path, mode=BY_UMASK) as file:
        for part in _parts(connection, record):
            file.write(part.encode())
        file.write(b"# EOF\n")


def _parts(connection: duckdb.DuckDBPyConnection, record: Record) -> Iterator[str]:
    """The text of all families, in chunks."""
    if damaged := replaced_tables(connection):
        raise RecordError(f"{record.path}: damaged tables: {', '.join(damaged)}; see rollbook verify")
    read = connection.execute("SELECT view_name FROM duckdb_views() WHERE contains(sql, 'read_parquet')").fetchall()
    # A file that has the name of another table, such as hosts, has no view.
    files = {name: path for name, path in record.series_files().items() if (name,) in read}
    notes = {name: about(connection, path.resolve()) for name, path in files.items()}
    found = families(notes)
    tables = {}
    for table in files:
        if own := [column for columns in found.values() for column in columns if column.table == table]:
            tables[table] = _Table(connection, table, notes[table], own)
    for name, columns in found.items():
        lines = filter(None, (lines for column in columns for lines in tables[column.table].lines(column)))
        first = next(lines, "")
        if first:
            yield f"# TYPE {name} {columns[0].kind}\n# HELP {name} {help_of(columns)}\n{first}"
            yield from lines


def help_of(columns: Sequence[Column]) -> str:
    """The help text of a family: its columns, and the metrics of the catalogue that are computed from them."""
    origin = " ".join(dict.fromkeys(re.sub(r"[^\w. ]", "?", f"{one.table}.{one.name}") for one in columns))
    described, names = dict[str, None](), dict[str, None]()
    for metric in metrics.load().values():
        for column in columns:
            formula = metric.formulas.get(column.table)
            if formula is None or column.name not in formula.columns:
                continue
            all_rows = all(f"'{value}'" in column.where for value in metric.where.values())
            if column.keyless and not all_rows:
                continue
            names[metric.name] = None
            if len(formula.columns) == 1 and all_rows:  # then it describes the column itself
                described[f"{metric.description}."] = None
    used = f"Used for {', '.join(names)}." if names else ""
    found = " ".join(filter(None, [f"From {origin}.", *list(described)[:1], used]))
    return found.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _Table:
    """One table of the record, written column by column in its order: by host, key and time.

    Every query costs some milliseconds, so one reads several columns, if they are short enough to be held.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        name: str,
        notes: Mapping[str, tuple[str, str]],
        columns: Sequence[Column],
    ) -> None:
        self._connection, self._columns = connection, columns
        self._held: dict[Column, list[str]] = {}
        keys = ["host", *(quoted(column) for column, (mode, _) in notes.items() if mode == "key")]
        labels = LABELS.get(name) or {key.strip('"'): key for key in keys[1:]}
        # Find once which characters occur, so that lines are only escaped for those.
        values = ", ".join(["host", *labels.values()])
        query = f"SELECT {values}, count(*) FROM {quoted(name)} GROUP BY ALL"  # noqa: S608 - our own names
        groups = connection.execute(query).fetchall()
        present = {char for row in groups for cell in row[:-1] for char in str(cell)}
        self._at_once = max(1, HELD // max(1, sum(row[-1] for row in groups)))
        self._labels = {label: _escaped(value, present) for label, value in {"host": "host", **labels}.items()}
        # A window without an order takes the rows as they are stored, and streams.
        before = ", ".join(f"lag({key}) OVER () AS {quoted(f'before {key}')}" for key in [*keys, "ts"])
        alike = " AND ".join(f"{key} = {quoted(f'before {key}')}" for key in keys)
        apart = f'({alike} AND epoch_ns(ts) - epoch_ns("before ts") < {CLOSE_NS}) IS NOT TRUE'
        self._rows = f"(SELECT *, {before} FROM {quoted(name)}) WHERE {apart}"  # noqa: S608 - quoted

    def lines(self, column: Column) -> Iterator[str]:
        """The samples of one column, in chunks of many lines or none."""
        if column in self._held:
            yield from self._held.pop(column)
            return
        at = self._columns.index(column)
        wanted = self._columns[at : at + self._at_once]
        held: list[list[str]] = [[] for _ in wanted[1:]]
        found = self._connection.execute(f"SELECT {', '.join(map(self._line, wanted))} FROM {self._rows}")  # noqa: S608 - quoted
        while rows := found.fetchmany(CHUNK):
            first, *others = ("".join([f"{line}\n" for line in lines if line]) for lines in zip(*rows, strict=True))
            yield first
            for chunks, chunk in zip(held, others, strict=True):
                chunks.append(chunk)
        self._held |= zip(wanted[1:], held, strict=True)

    def _line(self, column: Column) -> str:
        """SQL of a sample's line; NULL for rows without one."""
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
        line = ", ".join([*parts, "'} '", value, "' '", "epoch_ms(ts) / 1000"])
        wanted = " AND ".join(filter(None, (f"{quoted(column.name)} IS NOT NULL", column.where)))
        return f"CASE WHEN {wanted} THEN concat({line}) END"


def _escaped(value: str, present: set[str]) -> str:
    r"""SQL that escapes a text for a label; `present` are the characters that occur.

    If some are written in the form `\x01`, backslashes are doubled, so that different texts stay different.
    """
    if "\\" in present:
        value = f"replace({value}, chr(92), {text(4 * chr(92) if present & CONTROLS.keys() else 2 * chr(92))})"
    for unsafe, instead in UNSAFE.items():
        if unsafe in present:
            value = f"replace({value}, chr({ord(unsafe)}), {text(instead)})"
    return value
