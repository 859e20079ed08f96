"""Columns handed to DuckDB: what it reads of them, and that they go with their last user."""

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
def no_search() -> Iterator[None]:
    """Python does not look for garbage."""
    gc.disable()
    yield
    gc.enable()


def test_what_duckdb_reads() -> None:
    """Numbers and texts of several batches, absent ones among them, as often as they are asked for."""
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


def written(path: Path) -> list[weakref.ref[Any]]:
    """References to a table that was written to a file, and to what it was made of."""
    texts = Texts([("a", 10), (None, 10)])
    batches = Batches([{"name": texts, "value": Numbers("l", array("q", range(20)), [(3, 4)])}])
    with duckdb.connect() as connection:
        write(connection, "FROM batches", path, SMALL, batches=batches)
    return [weakref.ref(thing) for thing in (batches, texts, texts.data, texts.text)]


@pytest.mark.usefixtures("no_search")
def test_nothing_is_left_for_the_search_for_garbage(tmp_path: Path) -> None:
    """Sealing is done without it: what refers to itself would stay until its end."""
    assert [left() for left in written(tmp_path / "table.parquet")] == [None] * 4
    assert duckdb.read_parquet(str(tmp_path / "table.parquet")).shape == (20, 2)
