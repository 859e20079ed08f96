"""Tables of the series: parts written as the hosts are read, then put together into one Parquet file per source.

A table has `host`, `ts` (on the collector's clock), `mono` (the host's monotonic clock when this source was read), the
fields that name the row, and all other fields, dicts as one column per name. Rows are sorted by host, key and time; a
host with more values than are held at once comes in windows of time, each sorted so, and the file says that it does.
Whole numbers are BIGINT, or DECIMAL(20) where one does not fit; lists are lists; what is absent is NULL.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import typing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from rollbook.errors import RecordError
from rollbook.files import atomic_path
from rollbook.sources.base import Source, compare_of
from rollbook.tables.arrow import Batches, Numbers, Texts
from rollbook.tables.columns import Block, Column, Home
from rollbook.tables.footers import concatenate
from rollbook.tables.quoting import literal, parquet, quoted, text

__all__ = ["Part", "Parts", "about", "connect", "empty", "in_order", "join", "write"]

BUDGET = 16 << 20  # values held before a part is written: each of its columns takes its time, however short
GROUP = 4 << 20  # values in one row group
MOST_COLUMNS = 4096
ABOUT, ORDER = "rollbook_columns", "rollbook_order"
IN_ORDER = "host, key, time"
# A dictionary keeps the writer from storing counters as differences, which are a third smaller and quicker to make;
# the few names of hosts and devices are better off with one.
SMALL = "PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 1, DICTIONARY_SIZE_LIMIT 64"
KINDS = {"q": "BIGINT", "d": "DOUBLE", "o": "VARCHAR"}
TYPES = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", bool: "BOOLEAN"}


@dataclasses.dataclass
class Part:
    """One part of a table on disk: its columns in their order with their SQL types, and where they come from.

    `wide` are those that do not fit the type of their field. `again` says that a host is in it, or was before, in more
    than one window of time.
    """

    source: str
    path: Path
    rows: int
    columns: list[tuple[str, str]]
    homes: dict[str, Home]
    wide: set[str]
    again: bool


class Parts:
    """Collects blocks of all tables; when they have become many, those of the largest are written."""

    def __init__(self, directory: Path, *, merged: bool) -> None:
        self._directory, self._merged = directory, merged
        self._waiting: dict[str, list[Block]] = {}
        self._values: Counter[str] = Counter()
        self._connection = connect({"threads": 1})
        self._hosts: dict[str, str] = {}  # whose block came last
        self._again: set[str] = set()
        self.written: list[Part] = []

    def add(self, block: Block) -> None:
        """One more block; blocks of one source come in the order of the table."""
        name = block.source.name
        if self._hosts.get(name) == block.host:
            self._again.add(name)
        self._hosts[name] = block.host
        self._waiting.setdefault(name, []).append(block)
        self._values[name] += block.values
        while self._values.total() > BUDGET:
            ((largest, _),) = self._values.most_common(1)
            self._write(largest)

    def close(self) -> None:
        """Write the rest."""
        for name in list(self._waiting):
            self._write(name)
        self._connection.close()

    def _write(self, name: str) -> None:
        blocks = self._waiting.pop(name)
        del self._values[name]
        source, homes = blocks[0].source, _united([block.homes for block in blocks])
        kinds = {
            name: max((block.columns[name].kind for block in blocks if name in block.columns), key="-qdo".find)
            for name in homes
        }
        kinds = {name: kind for name, kind in kinds.items() if kind}  # the others hold nothing but absent values
        homes = _complete(source, {name: homes[name] for name in kinds})
        wide = {name for name, kind in kinds.items() if kind == "o" and _type(source, homes[name]) == "BIGINT"}
        columns = _columns(source, homes, wide, merged=self._merged)
        self._directory.mkdir(exist_ok=True)
        path = self._directory / f"{len(self.written):06d}.parquet"
        batches = Batches([_batch(block, kinds) for block in blocks])
        query = _query(columns, {name: KINDS[kind] for name, kind in kinds.items()}, "batches")
        write(self._connection, query, path, _options(columns), batches=batches)
        rows = sum(len(block.ts) for block in blocks)
        self.written.append(Part(source.name, path, rows, columns, homes, wide, source.name in self._again))


def connect(config: dict[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
    """A database that does nothing but write tables."""
    connection = duckdb.connect(config=config or {})
    connection.execute("SET enable_progress_bar = false")  # it would be drawn on stdout
    # Parts fit together if every column may be absent, whatever DuckDB may know of those that are not.
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")
    return connection


def join(
    connection: duckdb.DuckDBPyConnection, source: Source, parts: Sequence[Part], target: Path, *, merged: bool
) -> None:
    """Put the parts of one table together, in their order, as the file `target`.

    Parts that lack a column, or have one in a narrower type, are written anew; the others are taken as they are.
    """
    homes = _complete(source, _united([part.homes for part in parts]))
    columns = _columns(source, homes, set[str]().union(*(part.wide for part in parts)), merged=merged)
    for part in parts:
        if part.columns != columns:
            write(connection, _query(columns, dict(part.columns), parquet(part.path)), part.path, _options(columns))
    notes, fields = compare_of(source.row_type), source.row_type.__struct_fields__
    about = {name: [notes[fields[home.field]].mode, notes[fields[home.field]].unit] for name, home in homes.items()}
    order = "host, window, key, time" if any(part.again for part in parts) else IN_ORDER
    with _explained(target), atomic_path(target) as temporary:
        concatenate([part.path for part in parts], temporary, {ABOUT: _json(about), ORDER: order})


def about(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, tuple[str, str]]:
    """Of each column of a table how it compares (`counter`, `gauge`, …) and its unit, as the file itself says."""
    found = _kept(connection, path).get(ABOUT, "{}")
    return {name: (mode, unit) for name, (mode, unit) in msgspec.json.decode(found).items()}


def in_order(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether all rows of a table are sorted by host, key and time, as the file itself says."""
    return _kept(connection, path).get(ORDER) == IN_ORDER


def _kept(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    query = "SELECT decode(key), decode(value) FROM parquet_kv_metadata(?)"
    return dict(connection.execute(query, [literal(path)]).fetchall())


def empty(source: Source) -> str:
    """A query that gives the columns of a table that is not there, and no rows."""
    notes = compare_of(source.row_type)
    fields = [
        f"NULL::{kind} AS {quoted(name)}"
        for name, kind in zip(source.row_type.__struct_fields__, _types(source), strict=True)
        if not notes[name].columns
    ]
    times = "NULL::VARCHAR AS host, NULL::TIMESTAMP_NS AS ts, NULL::BIGINT AS mono"
    return f"SELECT {', '.join([times, *fields])} LIMIT 0"


def write(connection: duckdb.DuckDBPyConnection, query: str, path: Path, options: str, **tables: Any) -> None:
    """Write the result of a query as a Parquet file: a part of a table, which need not survive a crash."""
    with _explained(path), atomic_path(path, sync=False) as temporary:
        for name, table in tables.items():
            connection.register(name, table)
        connection.execute(f"COPY ({query}) TO {text(temporary)} (FORMAT parquet, USE_TMP_FILE false, {options})")
        for name in tables:
            connection.unregister(name)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn errors of DuckDB into a `RecordError` that names the file."""
    try:
        yield
    except duckdb.Error as error:
        raise RecordError(f"cannot write {path}: {error}") from error


def _complete(source: Source, homes: Mapping[str, Home]) -> dict[str, Home]:
    """The columns in the order of the table: what names the row, then all others, those that are absent too."""
    notes, fields = compare_of(source.row_type), source.row_type.__struct_fields__
    absent = {name: Home(field) for field, name in enumerate(fields) if not notes[name].columns and name not in homes}
    order = {field: (notes[name].mode != "key", field) for field, name in enumerate(fields)}
    return dict(sorted({**homes, **absent}.items(), key=lambda item: order[item[1].field]))


def _columns(source: Source, homes: Mapping[str, Home], wide: set[str], *, merged: bool) -> list[tuple[str, str]]:
    """Name and SQL type of each column but host and times."""
    modes, found = [notes.mode for notes in compare_of(source.row_type).values()], list[tuple[str, str]]()
    for name, home in homes.items():
        kind = _type(source, home)
        if merged and modes[home.field] == "gauge" and not home.part and kind == "BIGINT":
            kind = "DOUBLE"  # a mean
        found.append((name, "DECIMAL(20, 0)" if name in wide else kind))
    return found


def _query(columns: Sequence[tuple[str, str]], there: Mapping[str, str], table: str) -> str:
    """All columns out of a table where some are not there, or are of another type."""
    chosen = ["host", "ts", "mono"]
    for name, kind in columns:
        if there.get(name) == kind:
            chosen.append(quoted(name))
            continue
        value = quoted(name) if name in there else "NULL"
        if kind.endswith("[]"):  # JSON, nearly always empty
            value = f"CASE WHEN {value} = '[]' THEN [] ELSE CAST(CAST({value} AS JSON) AS {kind}) END"
        chosen.append(f"CAST({value} AS {kind}) AS {quoted(name)}")
    return f"SELECT {', '.join(chosen)} FROM {table}"  # noqa: S608 - our own names


def _options(columns: Sequence[tuple[str, str]]) -> str:
    rows = GROUP // (3 + len(columns)) // 2048 * 2048
    return f"{SMALL}, ROW_GROUP_SIZE {max(2048, min(122_880, rows))}"


def _united(homes: Sequence[Mapping[str, Home]]) -> dict[str, Home]:
    """All columns, in the order they were met; of too many, those that most have.

    SQL does not tell Name from name, so the first of such keeps it.
    """
    chosen = dict(Counter(itertools.chain.from_iterable(homes)).most_common(MOST_COLUMNS))
    found: dict[str, Home] = {}
    lower: dict[str, str] = {}
    for columns in homes:
        for name, home in columns.items():
            if name in chosen and lower.setdefault(name.lower(), name) == name:
                found.setdefault(name, home)
    return found


def _batch(block: Block, kinds: Mapping[str, str]) -> dict[str, Numbers | Texts]:
    rows = len(block.ts)
    found: dict[str, Numbers | Texts] = {
        "host": Texts([(block.host, rows)]),
        "ts": Numbers("tsn:", block.ts),
        "mono": Numbers("l", block.mono),
    }
    for name, kind in kinds.items():
        column = block.columns.get(name) or Column()
        if column.size < rows:
            column.add_nulls(rows - column.size)
        column.become(kind)
        if isinstance(column.data, list):
            runs = [(value, len(list(same))) for value, same in itertools.groupby(column.data)]
            found[name] = Texts([(v if v is None or type(v) is str else _json(v), count) for v, count in runs])
        else:
            found[name] = Numbers("l" if kind == "q" else "g", column.data, column.nulls)
    return found


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@functools.cache
def _types(source: Source) -> list[str]:
    """The SQL type of each field; of dicts, that of their values."""
    found = []
    for hint in typing.get_type_hints(source.row_type).values():
        options = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        inner = options[0] if type(None) in typing.get_args(hint) else hint
        args = typing.get_args(inner)
        if typing.get_origin(inner) is list and args[0] in TYPES:
            found.append(TYPES[args[0]] + "[]")
        else:
            found.append(TYPES.get(args[1] if typing.get_origin(inner) is dict else inner, "VARCHAR"))
    return found


def _type(source: Source, home: Home) -> str:
    return _types(source)[home.field]
