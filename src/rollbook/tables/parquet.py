"""Tables of the series: parts written while hosts are read, then joined into one Parquet file per source.

A table has `host`, `ts` (on the collector's clock), `mono` (the host's monotonic clock when this source was read), the
key fields of the row, and all other fields; dicts become one column per name. Rows are sorted by host, key and time. A
host with more values than fit into memory comes in windows of time, each sorted; the file's metadata says so. Integers
are BIGINT, or DECIMAL(20) if one does not fit; lists are lists; absent values are NULL.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import shutil
import typing
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from rollbook.errors import RecordError
from rollbook.files import atomic_path
from rollbook.sources.base import Source, compare_of
from rollbook.tables.arrow import Batches, Numbers, Texts
from rollbook.tables.columns import WIDTHS, Block, Column, Origin
from rollbook.tables.footers import concatenate
from rollbook.tables.quoting import literal, parquet, quoted, text
from rollbook.tables.reasons import reason_of

__all__ = ["Part", "Parts", "about", "connect", "empty", "in_order", "join", "json_text", "write"]

BUDGET = 16 << 20  # values held before a part is written: every column has a fixed cost
GROUP = 4 << 20  # values in one row group
MAX_COLUMNS = 4096
COLUMNS, ORDER = "rollbook_columns", "rollbook_order"
IN_ORDER = "host, key, time"
# Counters are a third smaller and faster to write as differences, which the writer uses only without a dictionary; the
# few names of hosts and devices are better stored with one.
SMALL = "PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 1, DICTIONARY_SIZE_LIMIT 64"
KIND_TYPES = {"q": "BIGINT", "d": "DOUBLE", "o": "VARCHAR"}
TYPES = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", bool: "BOOLEAN"}


@dataclasses.dataclass(frozen=True)
class Use:
    """A column: its origin, the number of hosts that have it, and its lowest position among the columns of a host."""

    origin: Origin
    hosts: int
    rank: int

    def __add__(self, other: Use) -> Use:
        return Use(self.origin, self.hosts + other.hosts, min(self.rank, other.rank))


@dataclasses.dataclass
class Part:
    """One part of a table on disk: its columns in order with their SQL types.

    `uses` are the columns by their names in the source; `names` maps these names to those in the file. `left_out` are
    columns of the source beyond the limit. `wide` are columns with values that do not fit the type of their field.
    `windowed` says that a host of this table has more than one window of time.
    """

    source: str
    path: Path
    rows: int
    columns: list[tuple[str, str]]
    uses: dict[str, Use]
    names: dict[str, str]
    left_out: set[str]
    wide: set[str]
    windowed: bool


class Parts:
    """Collects blocks of all tables; when they exceed the budget, those of the largest table are written."""

    def __init__(self, directory: Path, *, merged: bool) -> None:
        self._directory, self._merged = directory, merged
        self._waiting: dict[str, list[Block]] = {}
        self._values: Counter[str] = Counter()
        self._connection = connect({"threads": 1})
        self._hosts: dict[str, str] = {}  # host of the latest block, by table
        self._windowed: set[str] = set()
        self.written: list[Part] = []

    def add(self, block: Block) -> None:
        """Add a block; blocks of one source must come in the order of the table."""
        name = block.source.name
        if self._hosts.get(name) == block.host:
            self._windowed.add(name)
        self._hosts[name] = block.host
        self._waiting.setdefault(name, []).append(block)
        self._values[name] += block.values
        while self._values.total() > BUDGET:
            ((largest, _),) = self._values.most_common(1)
            self._write(largest)

    def close(self) -> None:
        """Write the remaining blocks."""
        for name in list(self._waiting):
            self._write(name)
        self._connection.close()

    def _write(self, name: str) -> None:
        blocks = self._waiting.pop(name)
        del self._values[name]
        source, uses = blocks[0].source, _uses(blocks)
        chosen = _chosen(uses)
        left_out = uses.keys() - chosen
        kinds = {
            name: max((block.columns[name].kind for block in blocks if name in block.columns), key=WIDTHS.index)
            for name in chosen
        }
        kinds = {name: kind for name, kind in kinds.items() if kind}  # the others hold only nulls
        uses = {name: uses[name] for name in kinds}
        names, origins = _named(source, uses)
        objects = [name for name, kind in kinds.items() if kind == "o"]
        wide = {name for name in objects if _types(source)[uses[name].origin.field] == "BIGINT"}
        columns = _columns(source, origins, {names[name] for name in wide}, merged=self._merged)
        self._directory.mkdir(exist_ok=True)
        path = self._directory / f"{len(self.written):06d}.parquet"
        batches = Batches([_batch(block, kinds, names) for block in blocks])
        existing = {names[name]: (names[name], KIND_TYPES[kind]) for name, kind in kinds.items()}
        windowed = source.name in self._windowed
        metadata = _metadata(source, origins, windowed=windowed)
        pairs = ", ".join(f"{name}: {text(value)}" for name, value in metadata.items())
        options = f"{_options(columns)}, KV_METADATA {{{pairs}}}"
        write(self._connection, _query(columns, existing, "batches"), path, options, batches=batches)
        rows = sum(len(block.ts) for block in blocks)
        self.written.append(Part(source.name, path, rows, columns, uses, names, left_out, wide, windowed))


def connect(config: dict[str, Any] | None = None) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection to write and verify tables."""
    connection = duckdb.connect(config=config or {})
    connection.execute("SET enable_progress_bar = false")  # it is written to stdout
    # Parts have the same schema only if every column is nullable; DuckDB would mark some as not.
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")
    return connection


def join(
    connection: duckdb.DuckDBPyConnection, source: Source, parts: Sequence[Part], target: Path, *, merged: bool
) -> int:
    """Join the parts of one table, in their order, into the file `target`.

    A single part already is the table. Parts that lack a column, or have one in a narrower type, are rewritten; the
    others are copied unchanged. Returns the number of columns that the table lacks, or has without the values of some
    hosts, because there are too many.
    """
    if len(parts) == 1:
        with atomic_path(target) as temporary:
            shutil.copyfile(parts[0].path, temporary)
        return len(parts[0].left_out)
    uses: dict[str, Use] = {}
    for part in parts:
        for name, use in part.uses.items():
            uses[name] = uses[name] + use if name in uses else use
    chosen = _chosen(uses)
    names, origins = _named(source, {name: uses[name] for name in chosen})
    wide = {names[name] for part in parts for name in part.wide if name in names}
    columns = _columns(source, origins, wide, merged=merged)
    for part in parts:
        if part.columns != columns:
            types = dict(part.columns)
            existing = {names[name]: (old, types[old]) for name, old in part.names.items() if name in names}
            write(connection, _query(columns, existing, parquet(part.path)), part.path, _options(columns))
    metadata = _metadata(source, origins, windowed=any(part.windowed for part in parts))
    with atomic_path(target) as temporary:
        concatenate([part.path for part in parts], temporary, metadata)
    return len((uses.keys() - chosen).union(*(part.left_out for part in parts)))


def about(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, tuple[str, str]]:
    """The mode (`counter`, `gauge`, …) and unit of each column of a table, from the metadata of the file.

    Raises one of `UNREADABLE` if the file is damaged.
    """
    return msgspec.json.decode(_stored_metadata(connection, path).get(COLUMNS, "{}"), type=dict[str, tuple[str, str]])


def in_order(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Whether all rows of a table are sorted by host, key and time, from the metadata of the file."""
    return _stored_metadata(connection, path).get(ORDER) == IN_ORDER


def _metadata(source: Source, origins: Mapping[str, Origin], *, windowed: bool) -> dict[str, str]:
    """What the file of a table says about its columns and the order of its rows."""
    notes, fields = compare_of(source.row_type), source.row_type.__struct_fields__
    compare = {name: notes[fields[origin.field]] for name, origin in origins.items()}
    modes = msgspec.json.encode({name: [how.mode, how.unit] for name, how in compare.items()}).decode()
    return {COLUMNS: modes, ORDER: "host, window, key, time" if windowed else IN_ORDER}


def _stored_metadata(connection: duckdb.DuckDBPyConnection, path: Path) -> dict[str, str]:
    query = "SELECT decode(key), decode(value) FROM parquet_kv_metadata(?)"
    return dict(connection.execute(query, [literal(path)]).fetchall())


def empty(source: Source) -> str:
    """A query with the columns of a table that does not exist, and no rows."""
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
    try:
        with atomic_path(path, sync=False) as temporary:
            for name, table in tables.items():
                connection.register(name, table)
            connection.execute(f"COPY ({query}) TO {text(temporary)} (FORMAT parquet, USE_TMP_FILE false, {options})")
            for name in tables:
                connection.unregister(name)
    except duckdb.Error as error:
        raise RecordError(f"cannot write {path}: {reason_of(error)}") from error


def _complete(source: Source, origins: Mapping[str, Origin]) -> dict[str, Origin]:
    """All columns in the order of the table: key fields first, then all others, including those without values."""
    notes, fields = compare_of(source.row_type), source.row_type.__struct_fields__
    declared = {name: Origin(field) for field, name in enumerate(fields) if not notes[name].columns}
    order = {field: (notes[name].mode != "key", field) for field, name in enumerate(fields)}
    return dict(sorted({**declared, **origins}.items(), key=lambda item: order[item[1].field]))


def _columns(source: Source, origins: Mapping[str, Origin], wide: set[str], *, merged: bool) -> list[tuple[str, str]]:
    """Name and SQL type of each column except host and times."""
    modes, found = [notes.mode for notes in compare_of(source.row_type).values()], list[tuple[str, str]]()
    for name, origin in origins.items():
        kind = _types(source)[origin.field]
        if merged and modes[origin.field] == "gauge" and not origin.part and kind == "BIGINT":
            kind = "DOUBLE"  # a mean
        found.append((name, "DECIMAL(20, 0)" if name in wide else kind))
    return found


def _query(columns: Sequence[tuple[str, str]], existing: Mapping[str, tuple[str, str]], table: str) -> str:
    """A query for all columns from a table in which some have another name or type, or are missing."""
    chosen = ["host", "ts", "mono"]
    for name, kind in columns:
        old, old_kind = existing.get(name, ("", ""))
        value = quoted(old) if old else "NULL"
        if old_kind == kind:
            chosen.append(f"{value} AS {quoted(name)}")
            continue
        if kind.endswith("[]"):  # JSON text, nearly always empty
            value = f"CASE WHEN {value} = '[]' THEN [] ELSE CAST(CAST({value} AS JSON) AS {kind}) END"
        chosen.append(f"CAST({value} AS {kind}) AS {quoted(name)}")
    return f"SELECT {', '.join(chosen)} FROM {table}"  # noqa: S608 - our own names


def _options(columns: Sequence[tuple[str, str]]) -> str:
    rows = GROUP // (3 + len(columns)) // 2048 * 2048
    return f"{SMALL}, ROW_GROUP_SIZE {max(2048, min(122_880, rows))}"


def _uses(blocks: Sequence[Block]) -> dict[str, Use]:
    """All columns of some blocks, in order of appearance."""
    found, hosts = dict[str, Use](), dict[str, str]()
    for block in blocks:
        for rank, (name, origin) in enumerate(block.origins.items()):
            use = Use(origin, int(hosts.get(name) != block.host), rank)  # a host may have several blocks
            hosts[name] = block.host
            found[name] = found[name] + use if name in found else use
    return found


def _chosen(uses: Mapping[str, Use]) -> list[str]:
    """All columns; if there are too many, those that most hosts have, and among equals the first ones of each host."""
    if len(uses) <= MAX_COLUMNS:
        return list(uses)
    best = set(sorted(uses, key=lambda name: (-uses[name].hosts, uses[name].rank, name))[:MAX_COLUMNS])
    return [name for name in uses if name in best]


def _named(source: Source, uses: Mapping[str, Use]) -> tuple[dict[str, str], dict[str, Origin]]:
    """The name of each column in the table, by its name in the source, and the origins by name in the table.

    SQL does not distinguish `Name` from `name`: the one that most hosts have keeps its name, among equals one in lower
    case; the others get a number.
    """
    names = {name: name for name in uses}
    keepers: dict[str, str] = {}
    for name in sorted(uses, key=lambda name: (-uses[name].hosts, name.swapcase())):
        keepers.setdefault(name.lower(), name)
    for name in sorted(name for name in uses if keepers[name.lower()] != name):
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        names[name] = next(new for new in numbered if new.lower() not in keepers)
        keepers[names[name].lower()] = name
    return names, _complete(source, {names[name]: use.origin for name, use in uses.items()})


def _batch(block: Block, kinds: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Numbers | Texts]:
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
        column.widen(kind)
        if isinstance(column.data, list):
            runs = [(value, len(list(same))) for value, same in itertools.groupby(column.data)]
            found[names[name]] = Texts([(json_text(value), count) for value, count in runs])
        else:
            found[names[name]] = Numbers("l" if kind == "q" else "g", column.data, column.nulls)
    return found


def json_text(value: Any) -> str | None:
    """A value as text: texts as they are, all else as JSON; None stays None."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


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
