"""Tables are plain Parquet: other libraries read the same values from them as DuckDB does."""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet  # type: ignore[import-untyped]
import pytest

from rollbook.journal.survey import survey
from rollbook.tables.seal import seal
from rollbook.testing.journals import Script

SECOND = 10**9
START = 1_700_000_000 * SECOND
DISKS = "8 0 sda 10 0 80 5 20 0 {0} 7 0 9 12\n8 16 sdb 10 0 80 5 20 0 {0} 7 0 9 12 1 2 3 4 5 6 7\n"


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of two hosts with different columns, 64-bit counters, lists and nulls, joined from several parts."""
    path = tmp_path_factory.mktemp("series")
    script = Script(path / "raw", ["a", "b"], ["diskstats", "vmstat", "loadavg"])
    for host in (0, 1):
        script.connect(host)
        for number in range(30):
            counter = (1 << 63) + number if host else number
            texts = {
                "diskstats": {"/proc/diskstats": DISKS.format(number)},
                "vmstat": {"/proc/vmstat": f"nr_dirty {number}\npgfault {counter}\nonly_{host} 1\n"},
                "loadavg": {"/proc/loadavg": f"{number}.25 0.00 0.00 1/2 3\n"},
            }
            script.sample(START + number * SECOND, texts, host=host)
    script.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rollbook.tables.parquet.BUDGET", 1)
        seal(survey(path / "raw"), path / "series")
    return path / "series"


@pytest.mark.parametrize("name", ["diskstats", "vmstat", "loadavg"])
@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_other_libraries_read_the_same_values(series: Path, name: str, library: str) -> None:
    """Names, order and values of all columns agree; a timestamp keeps its nanoseconds."""
    path = series / f"{name}.parquet"
    found = duckdb.execute("SELECT * REPLACE (epoch_ns(ts) AS ts) FROM read_parquet(?)", [str(path)])
    names = [column[0] for column in found.description]
    expected = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    if library == "pyarrow":
        table = pyarrow.parquet.read_table(path)
        table = table.set_column(names.index("ts"), "ts", table["ts"].cast("int64"))
        rows = table.to_pylist()
    else:
        frame = pl.read_parquet(path)
        rows = frame.with_columns(pl.col("ts").cast(pl.Int64)).to_dicts()
    assert len(rows) == (120 if name == "diskstats" else 60)
    assert list(rows[0]) == names
    assert rows == expected
