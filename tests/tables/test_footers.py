"""Parquet files concatenated without decoding their data."""

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


def write_part(path: Path, query: str, rows: int = 2048) -> Path:
    """Write the result of a query as a Parquet file with this many rows per row group."""
    duckdb.execute(f"COPY ({query}) TO '{path}' (FORMAT parquet, {SMALL}, ROW_GROUP_SIZE {rows})")
    return path


def test_concatenated_rows_and_metadata(tmp_path: Path) -> None:
    """All rows are read in order: every column type, several row groups, dictionaries, an empty part, new metadata."""
    ends = [0, 1, 9000, 9000, 40_000]
    queries = [EVERYTHING.format(label="ä", first=a, last=b) for a, b in itertools.pairwise(ends)]
    parts = [write_part(tmp_path / f"{number}.parquet", query) for number, query in enumerate(queries)]
    whole, metadata = tmp_path / "whole.parquet", {"a": "b", "long": "x" * 1000}
    concatenate(parts, whole, metadata)
    assert duckdb.execute(f"FROM '{whole}'").fetchall() == [
        row for query in queries for row in duckdb.execute(query).fetchall()
    ]
    stored = duckdb.execute(f"SELECT decode(key), decode(value) FROM parquet_kv_metadata('{whole}')")
    assert dict(stored.fetchall()) == metadata
    groups = f"SELECT count(DISTINCT row_group_id) FROM parquet_metadata('{whole}')"
    assert duckdb.execute(groups).fetchall()[0] == (1 + 5 + 16,)


def test_row_group_statistics_and_bloom_filters(tmp_path: Path) -> None:
    """Statistics and bloom filters of row groups stay valid, so that a reader can skip row groups."""
    parts = [
        write_part(tmp_path / f"{number}.parquet", f"SELECT '{name}' AS host, i FROM range({number}, 5000) rows(i)")
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


def test_concatenated_file_can_be_concatenated_again(tmp_path: Path) -> None:
    """A concatenated file can be a part of another one."""
    part = write_part(tmp_path / "part.parquet", EVERYTHING.format(label="", first=0, last=5000))
    concatenate([part, part], tmp_path / "two.parquet", {})
    concatenate([tmp_path / "two.parquet", part], tmp_path / "three.parquet", {})
    counted = f"SELECT count(*), sum(whole), count(wide) FROM '{tmp_path}/three.parquet'"
    assert duckdb.execute(counted).fetchall()[0] == (15_000, 3 * sum(range(5000)), 7500)


def test_parts_with_different_columns_are_refused(tmp_path: Path) -> None:
    """The error names both files."""
    parts = [write_part(tmp_path / f"{name}.parquet", f"SELECT 1 AS {name}") for name in "ab"]
    with pytest.raises(RecordError, match=r"columns of .*b\.parquet differ from those of .*a\.parquet"):
        concatenate(parts, tmp_path / "whole.parquet", {})


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1\xff\xff\xff\x00PAR1", b"anything else"])
def test_invalid_parquet_file_is_named(tmp_path: Path, content: bytes) -> None:
    """The error names a file that is truncated or is not Parquet."""
    (tmp_path / "part.parquet").write_bytes(content)
    with pytest.raises(RecordError, match=r"part\.parquet is not a Parquet file"):
        concatenate([tmp_path / "part.parquet"], tmp_path / "whole.parquet", {})
