"""Damaged tables: everything that needs one fails and names it, and no check passes on data that was not read."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

import rollbook
from rollbook.checks import engine
from rollbook.checks.run_data import RunData
from rollbook.errors import RecordError, RollbookError, UsageError
from rollbook.records.document import encode
from rollbook.records.layout import RecordDirectory
from rollbook.records.record import Record
from rollbook.report.build import build
from rollbook.sql import connection as store
from rollbook.sql.grids import open_tables
from rollbook.tables.derive import derive
from rollbook.testing.journals import Script
from rollbook.watch.replay import Replay
from tests.support.commands import Rollbook

SECOND = 10**9
START = 1_700_000_000 * SECOND


@pytest.fixture(scope="module")
def shared_record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """A record of six hosts with a disk each; the disk of the last host is slow for a while."""
    path = tmp_path_factory.mktemp("damage") / "20261115_000000"
    script = Script(path / "raw", [f"n{host}" for host in range(6)], ["loadavg", "diskstats"])
    for host in range(6):
        script.connect(host)
        busy = 0
        for second in range(60):
            busy += 2000 if host == 5 and 20 < second < 50 else 100
            disk = f"   8 0 sda {100 * second} 0 {8000 * second} {busy} 0 0 0 0 0 {busy} {busy}\n"
            pages = {"loadavg": {"/proc/loadavg": "0.5 0 0 1/2 3\n"}, "diskstats": {"/proc/diskstats": disk}}
            script.sample(START + second * SECOND, pages, host=host)
    script.close()
    _, _, hosts = derive(path)
    hosts.started_ns, hosts.ended_ns = START, START + 60 * SECOND
    (path / "hosts.json").write_bytes(encode(hosts))
    (path / "test_20261115_000000_metadata.json").write_text(
        '{"benchmark_type": "test", "run_datetime": "20261115_000000"}'
    )
    RecordDirectory(path, "test", "20261115_000000").write_manifest()
    return Record.open(path)


@pytest.fixture
def record(shared_record: Record, tmp_path: Path) -> Record:
    """A copy of that record that a test may change."""
    return Record.open(Path(shutil.copytree(shared_record.path, tmp_path / "record")))


def truncate(run: Record, table: str) -> None:
    """Truncate a table, so that it cannot be opened."""
    path = run.path / "series" / f"{table}.parquet"
    path.write_bytes(path.read_bytes()[:-20])


def corrupt(run: Record, table: str, column: str) -> None:
    """Overwrite the values of a column; the table can still be opened."""
    path = run.path / "series" / f"{table}.parquet"
    content = bytearray(path.read_bytes())
    places = duckdb.execute(
        "SELECT coalesce(dictionary_page_offset, data_page_offset), total_compressed_size "
        "FROM parquet_metadata(?) WHERE path_in_schema = ?",
        [str(path), column],
    ).fetchall()
    for start, size in places:
        content[start : start + size] = b"\xff" * size
    path.write_bytes(content)


def test_a_table_that_is_gone(record: Record) -> None:
    """A table with rows whose file is missing is damaged, not empty: no rule passes without it."""
    (record.path / "series" / "diskstats.parquet").unlink()
    with pytest.raises(UsageError, match="the table diskstats is damaged: its file is missing"):
        rollbook.query(record.path, "SELECT count(*) FROM diskstats")
    with pytest.raises(UsageError, match="diskstats is damaged"):
        rollbook.query(record.path, "SELECT max(disk_read) FROM rates")
    assert rollbook.query(record.path, "SELECT count(*) AS n FROM loadavg") == [{"n": 360}]
    outcomes = {rule.id: rule.outcome for rule in engine.check(RunData(record.hosts, path=record.path)).rules}
    assert outcomes["host-outlier"] == "could-not-tell"


@pytest.mark.parametrize("bit", [0x01, 0x80])
@pytest.mark.parametrize("text", [b'"counter"', b"counter", b'{"', b"device_name", b"reads_completed", b"PAR1"])
def test_flipped_bit_in_the_footer(record: Record, text: bytes, bit: int) -> None:
    """Damaged names and metadata affect only their own table."""
    path = record.path / "series" / "diskstats.parquet"
    content = bytearray(path.read_bytes())
    content[content.rindex(text)] ^= bit
    path.write_bytes(content)
    with store.connect(record) as connection:
        assert next(iter(store.rows(store.query(connection, "SELECT count(*) FROM loadavg")))) == (360,)
        try:
            assert len(list(store.rows(store.query(connection, "SELECT * FROM diskstats")))) == 360
        except UsageError as error:
            assert "the table diskstats is damaged" in str(error)  # noqa: PT017 - a flipped bit may have no effect
    assert rollbook.verify(record.path).problems


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(disk_read) FROM rates",
        "SELECT * FROM disks",
        "SELECT count(*) FROM host_disks",
        "SELECT count(*) FROM diskstats_rates",
        "SELECT * FROM diskstats WHERE host = 'n1'",
        "SELECT * FROM phase_stats WHERE metric = 'load_1min'",
    ],
)
def test_views_of_a_damaged_table_fail(record: Record, sql: str) -> None:
    """A view without the values of a damaged table would look like a record that never had them."""
    truncate(record, "diskstats")
    with store.connect(record) as connection, pytest.raises(UsageError, match="the table diskstats is damaged"):
        list(store.rows(store.query(connection, sql)))


def test_other_views_work(record: Record) -> None:
    """Queries of other tables work, even if a damaged file has the name of a built-in table."""
    truncate(record, "diskstats")
    (record.path / "series" / "hosts.parquet").write_bytes(b"damaged")
    for sql in ("SELECT count(*) FROM samples", "SELECT count(*) FROM host_loadavg", "SELECT count(*) FROM loadavg"):
        with store.connect(record) as connection:
            assert store.query(connection, sql).fetchall() == [(360,)], sql
    with store.connect(record) as connection:
        assert store.query(connection, "SELECT count(*) FROM hosts").fetchall() == [(6,)]


def test_outliers_of_a_damaged_table(record: Record) -> None:
    """The outcome is could-not-tell, and the page names the damaged table."""
    rule = engine.rule("host-outlier")
    assert engine.evaluate(rule, RunData(record.hosts, path=record.path)).outcome == "warn"
    truncate(record, "diskstats")
    result = engine.evaluate(rule, RunData(record.hosts, path=record.path))
    assert (result.outcome, result.note) == ("could-not-tell", "damaged tables: diskstats")
    with open_tables(record) as tables:
        page = build(record, tables)
    assert page.charts
    assert "Charts are missing because these tables are damaged: diskstats; see rollbook verify." in page.notes


def play(run: Record, tmp_path: Path) -> None:
    """Replay the last beat."""
    del tmp_path
    asyncio.run(Replay(run).settle())


def copy_of(run: Record, tmp_path: Path) -> Record:
    """A copy of a record, for comparisons."""
    return Record.open(Path(shutil.copytree(run.path, tmp_path / "copy")))


READERS: dict[str, Callable[[Record, Path], object]] = {
    "timeseries": lambda run, out: rollbook.export(run, out / "x.json", "timeseries"),
    "mlpstorage": lambda run, out: rollbook.export(run, out / "x", "mlpstorage"),
    "openmetrics": lambda run, out: rollbook.export(run, out / "x.txt", "openmetrics"),
    "csv": lambda run, out: rollbook.export(run, out / "x", "csv", "rates"),
    "replay": play,
    "compare": lambda run, out: rollbook.compare(run, copy_of(run, out)),
}


@pytest.mark.parametrize("damage", ["truncated", "corrupt"])
@pytest.mark.parametrize("reader", READERS)
def test_readers_name_the_damaged_table(record: Record, tmp_path: Path, damage: str, reader: str) -> None:
    """Readers raise `RecordError` instead of an error of DuckDB, and write nothing."""
    if damage == "truncated":
        truncate(record, "loadavg")
    else:
        corrupt(record, "loadavg", "load_1min")
    with pytest.raises(RecordError, match=r"loadavg|cannot write .*rates\.csv"):
        READERS[reader](record, tmp_path)
    assert not [path for path in tmp_path.rglob("x*") if path.is_file()]


def test_report_of_corrupt_data(record: Record, tmp_path: Path) -> None:
    """The page is not written; a notebook shows the record without charts."""
    corrupt(record, "loadavg", "load_1min")
    with pytest.raises(RecordError, match="loadavg"):
        rollbook.write_report(record, tmp_path / "page.html")
    assert "<svg" not in record._repr_html_()


def test_comparison_of_corrupt_data(record: Record, tmp_path: Path) -> None:
    """With stored statistics only charts need the series: without it, a notebook still shows the tables."""
    found = rollbook.compare(record, copy_of(record, tmp_path))
    assert "<svg" in found._repr_html_()
    corrupt(record, "diskstats", "sectors_read")
    assert "<svg" not in found._repr_html_()
    assert "<table>" in found._repr_html_()


def test_a_rule_does_not_pass_on_corrupt_data(record: Record) -> None:
    """If values cannot be read, the outcome is could-not-tell."""
    corrupt(record, "diskstats", "time_reading_ms")
    result = engine.evaluate(engine.rule("host-outlier"), RunData(record.hosts, path=record.path))
    assert result.outcome == "could-not-tell"


def test_damaged_findings(record: Record) -> None:
    """A record that was not checked has no findings; damaged findings are an error."""
    sql = "SELECT count(*) FROM findings"
    with store.connect(record) as connection:
        assert store.query(connection, sql).fetchall() == [(0,)]
    (record.path / "findings.json").write_text('{"rules": [')
    with store.connect(record) as connection, pytest.raises(RollbookError, match=r"findings\.json"):
        list(store.rows(store.query(connection, sql)))


def test_documents_that_are_not_utf8(record: Record, rollbook: Rollbook) -> None:
    """They are named like other broken documents, even if `list` does not decode the damaged part of the metadata."""
    (record.path / "findings.json").write_bytes(
        b'{"schema": "rollbook.findings/1", "created": "\xff", "groups": [], "rules": [], "counts": {}}'
    )
    [metadata] = record.path.glob("*_metadata.json")
    metadata.write_bytes(b'{"benchmark_type": "test", "metrics": {"text": "\xff"}}')
    for table in ("findings", "results"):
        every = rollbook("query", "--all", str(record.path.parent), f"SELECT * FROM {table}")
        assert (every.code, f"{record.path.name}: " in every.err, "utf-8" in every.err) == (3, True, True)
    with store.connect(record) as connection, pytest.raises(RollbookError, match=r"findings\.json"):
        list(store.rows(store.query(connection, "SELECT count(*) FROM findings")))


def test_a_time_that_no_table_can_hold(record: Record, rollbook: Rollbook) -> None:
    """The record cannot be queried, with the reason; other records can."""
    hosts = record.path / "hosts.json"
    hosts.write_text(json.dumps(json.loads(hosts.read_text()) | {"ended_ns": 2**63 - 1}))
    alone = rollbook("query", str(record.path), "SELECT * FROM phases")
    assert (alone.code, f"{record.path}: the tables cannot be read: " in alone.err) == (2, True)
    every = rollbook("query", "--all", str(record.path.parent), "SELECT * FROM phases")
    assert (every.code, f"{record.path.name}: " in every.err) == (3, True)
