"""Parquet files put together without reading their data: what a reader then finds in the whole."""

from __future__ import annotations

import itertools
from pathlib import Path

import duckdb
import pytest

from rollbook.errors import RecordError
from rollbook.tables.footers import concatenate
from rollbook.tables.parquet import SMALL

EVERYTHING = """SELECT 'host' || (i // 5000) AS host, make_timestamp_ns(i) AS ts, i AS whole, i / 7 AS decimal,
    i % 3 = 0 AS flag, [i, NULL] AS list, CASE WHEN i % 2 = 0 THEN i::DECIMAL(20, 0) END AS wide,
    NULL::BIGINT AS absent, '{label}' || i AS text FROM range({first}, {last}) rows(i)"""


def made(path: Path, query: str, rows: int = 2048) -> Path:
    """A file with what a query gives, some rows in a group."""
    duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, {SMALL}, ROW_GROUP_SIZE {rows})")
    return path


def test_rows_follow_each_other(tmp_path: Path) -> None:
    """Every kind of column, row groups and dictionaries in any number, an empty part, one metadata."""
    ends = [0, 1, 9000, 9000, 40_000]
    queries = [EVERYTHING.format(label="ä", first=a, last=b) for a, b in itertools.pairwise(ends)]
    parts = [made(tmp_path / f"{number}.parquet", query) for number, query in enumerate(queries)]
    whole, kept = tmp_path / "whole.parquet", {"a": "b", "long": "x" * 1000}
    concatenate(parts, whole, kept)
    assert duckdb.execute(f"FROM '{whole}'").fetchall() == [
        row for query in queries for row in duckdb.execute(query).fetchall()
    ]
    metadata = duckdb.execute(f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{whole}')")
    assert dict(metadata.fetchall()) == kept
    groups = f"SELECT count(DISTINCT row_group_id) FROM parquet_metadata('{whole}')"
    assert duckdb.execute(groups).fetchall()[0] == (1 + 5 + 16,)


def test_a_reader_leaves_out_groups(tmp_path: Path) -> None:
    """What the parts said of their row groups, bloom filters too, is still said of the right ones."""
    parts = [
        made(tmp_path / f"{number}.parquet", f"SELECT '{name}' AS host, i FROM range({number}, 5000) rows(i)")
        for number, name in enumerate(("one", "two", "three"))
    ]
    concatenate(parts, tmp_path / "whole.parquet", {})
    for number, name in enumerate(("one", "two", "three", "four")):
        counted = duckdb.execute(f"SELECT count(*), sum(i) FROM '{tmp_path}/whole.parquet' WHERE host = '{name}'")
        rows = range(number, 5000) if number < 3 else ()
        assert counted.fetchall()[0] == (len(rows), sum(rows) if rows else None)
        probed = f"SELECT count(*) FROM parquet_bloom_probe('{tmp_path}/whole.parquet', 'host', '{name}')"
        left = duckdb.execute(f"{probed} WHERE NOT bloom_filter_excludes").fetchall()[0]
        assert left == (3 if number < 3 else 0,)


def test_the_whole_once_more(tmp_path: Path) -> None:
    """A file that was put together is a part like any other."""
    part = made(tmp_path / "part.parquet", EVERYTHING.format(label="", first=0, last=5000))
    concatenate([part, part], tmp_path / "two.parquet", {})
    concatenate([tmp_path / "two.parquet", part], tmp_path / "three.parquet", {})
    counted = f"SELECT count(*), sum(whole), count(wide) FROM '{tmp_path}/three.parquet'"
    assert duckdb.execute(counted).fetchall()[0] == (15_000, 3 * sum(range(5000)), 7500)


def test_other_columns(tmp_path: Path) -> None:
    """Parts that do not fit are refused."""
    parts = [made(tmp_path / f"{name}.parquet", f"SELECT 1 AS {name}") for name in "ab"]
    with pytest.raises(RecordError, match=r"b\.parquet has other columns than .*a\.parquet"):
        concatenate(parts, tmp_path / "whole.parquet", {})


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1\xff\xff\xff\x00PAR1", b"anything else"])
def test_no_parquet(tmp_path: Path, content: bytes) -> None:
    """A file that is cut, or something else, is named."""
    (tmp_path / "part.parquet").write_bytes(content)
    with pytest.raises(RecordError, match=r"part\.parquet is not a Parquet file"):
        concatenate([tmp_path / "part.parquet"], tmp_path / "whole.parquet", {})
