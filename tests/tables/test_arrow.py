"""Columns passed to DuckDB: it reads all values, and their memory is released with the last reference."""

from __future__ import annotations

import gc
import weakref
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from rollbook.tables.arrow import Batches, Numbers, Texts
from rollbook.tables.parquet import SMALL, write


@pytest.fixture
def gc_disabled() -> Iterator[None]:
    """Disable the garbage collector, as sealing does."""
    gc.disable()
    yield
    gc.enable()


def test_duckdb_reads_all_batches() -> None:
    """DuckDB reads numbers, texts and nulls of several batches, and can read them twice."""
    batches = Batches(
        [
            {"name": Texts([("a", 2), (None, 1)]), "value": Numbers("l", array("q", [1, 2, 3]), [(1, 1)])},
            {"name": Texts([("ä", 1)]), "value": Numbers("l", array("q", [-4]))},
        ]
    )
    rows = [("a", 1), ("a", None), (None, 3), ("ä", -4)]
    with duckdb.connect() as connection:
        connection.register("batches", batches)
        assert connection.execute("FROM batches").fetchall() == rows
        assert connection.execute("FROM batches").fetchall() == rows


def write_table(path: Path) -> list[weakref.ref[Any]]:
    """Write a table to a file; returns weak references to the table and its columns."""
    texts = Texts([("a", 10), (None, 10)])
    batches = Batches([{"name": texts, "value": Numbers("l", array("q", range(20)), [(3, 4)])}])
    with duckdb.connect() as connection:
        write(connection, "FROM batches", path, SMALL, batches=batches)
    return [weakref.ref(part) for part in (batches, texts, texts.data, texts.text)]


@pytest.mark.usefixtures("gc_disabled")
def test_written_table_is_released_without_the_garbage_collector(tmp_path: Path) -> None:
    """A table has no reference cycles: sealing disables the garbage collector, and a cycle would stay in memory."""
    assert [reference() for reference in write_table(tmp_path / "table.parquet")] == [None] * 4
    assert duckdb.read_parquet(str(tmp_path / "table.parquet")).shape == (20, 2)
