"""Tables of the series: parts written as the hosts are read, then put together into one Parquet file per source.

A table has `host`, `ts` (on the collector's clock), `mono` (the host's monotonic clock when this source was read), the
fields that name the row, and all other fields, dicts as one column per name. Rows are sorted by host, key and time.
Whole numbers are BIGINT, or DECIMAL(20) where one does not fit; lists are lists; what is absent is NULL.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from rollbook.errors import RecordError
from rollbook.series.arrow import Batches, Numbers, Texts
from rollbook.series.columns import Block, Column, Home
from rollbook.sources.base import Source, compare_of

__all__ = ["Part", "Parts", "join", "quoted"]

BUDGET = 4 << 20  # values held before a part is written
GROUP = 4 << 20  # values in one row group
MOST_COLUMNS = 4096
TYPES = {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", bool: "BOOLEAN"}


@dataclasses.dataclass
class Part:
    """One part of a table on disk: its columns, where they come from, and those too wide for their type."""

    source: str
    path: str
    rows: int
    homes: dict[str, Home]
    wide: set[str]


class Parts:
    """Collects blocks of many tables, and writes a part of one whenever it has grown large."""

    def __init__(self, directory: Path, prefix: str) -> None:
        self._directory, self._prefix = directory, prefix
        self._waiting: dict[str, list[Block]] = {}
        self._connection = duckdb.connect(config={"threads": 1})
        self.written: list[Part] = []

    def add(self, block: Block) -> None:
        """One more block; blocks of one source come in the order of the table."""
        blocks = self._waiting.setdefault(block.source.name, [])
        blocks.append(block)
        if sum(one.values for one in blocks) > BUDGET:
            self._write(block.source.name)

    def close(self) -> None:
        """Write the rest."""
        for name in list(self._waiting):
            self._write(name)
        self._connection.close()

    def _write(self, name: str) -> None:
        blocks = self._waiting.pop(name)
        homes: dict[str, Home] = {}
        for block in blocks:
            homes.update({column: home for column, home in block.homes.items() if column not in homes})
        seen: dict[str, str] = {}  # DuckDB does not tell Name from name
        homes = {column: home for column, home in homes.items() if seen.setdefault(column.lower(), column) == column}
        kinds = {
            column: max((block.columns[column].kind for block in blocks if column in block.columns), key="-qdo".find)
            for column in list(homes)[:MOST_COLUMNS]
        }
        batches = Batches([_batch(block, kinds) for block in blocks])
        path = self._directory / f"{self._prefix}-{len(self.written):06d}.parquet"
        with writing(path):
            self._connection.execute(
                f"COPY (SELECT * FROM batches) TO {text(path)} (FORMAT parquet, COMPRESSION snappy)"  # noqa: S608
            )
        del batches
        source = blocks[0].source
        wide = {c for c, kind in kinds.items() if kind == "o" and sql_type(source, homes[c]) == "BIGINT"}
        rows = sum(len(block.ts) for block in blocks)
        self.written.append(Part(name, str(path), rows, {c: homes[c] for c, kind in kinds.items() if kind}, wide))


def _batch(block: Block, kinds: Mapping[str, str]) -> dict[str, Numbers | Texts]:
    rows = len(block.ts)
    found: dict[str, Numbers | Texts] = {
        "host": Texts([block.host] * rows),
        "ts": Numbers("tsn:", block.ts),
        "mono": Numbers("l", block.mono),
    }
    for name, kind in kinds.items():
        if not kind:
            continue  # nothing but absent values
        column = block.columns.get(name) or Column()
        if column.size < rows:
            column.add_nulls(rows - column.size)
        column.become(kind)
        if kind == "o":
            plain = sql_type(block.source, block.homes.get(name, Home(0))) == "VARCHAR"
            found[name] = Texts(_texts(column.data, plain=plain))
        else:
            assert not isinstance(column.data, list)
            found[name] = Numbers("l" if kind == "q" else "g", column.data, column.nulls)
    return found


def _texts(cells: Sequence[Any], *, plain: bool) -> list[str | None]:
    """Texts as they are, everything else as JSON."""
    if plain and all(type(cell) is str for cell in set(map(str, cells))):
        return [cell if cell is None or isinstance(cell, str) else msgspec.json.encode(cell).decode() for cell in cells]
    return [None if cell is None else msgspec.json.encode(cell).decode() for cell in cells]
