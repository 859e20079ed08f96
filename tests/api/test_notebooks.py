"""What notebooks need: calls inside a running event loop, frames from SQL, and objects that show themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import rollbook
from rollbook.errors import UsageError


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> rollbook.Record:
    """A record of a short run whose name would be markup."""
    results = tmp_path_factory.mktemp("notebook")
    return rollbook.run(["sleep", "0.5"], name="<b>x", results_dir=results, interval=0.2, report=False).record


def test_snapshot_inside_a_running_loop() -> None:
    """It blocks the loop and returns the snapshot; errors are raised as usual."""

    async def cell() -> rollbook.Snapshot:
        return rollbook.snapshot(sources=["meminfo"])

    assert asyncio.run(cell()).hosts[0].status == "complete"

    async def wrong() -> None:
        rollbook.snapshot(via="teleport")

    with pytest.raises(UsageError, match="teleport"):
        asyncio.run(wrong())


def test_sql_gives_a_relation(record: rollbook.Record) -> None:
    """The relation outlives the call, and gives frames; only one SELECT is allowed, and no other file can be read."""
    found = record.sql("SELECT host, count(*) AS beats FROM rates GROUP BY host")
    assert found.columns == ["host", "beats"]
    ((_, beats),) = found.fetchall()
    assert found.pl()["beats"].to_list() == [beats]
    assert found.arrow().read_all().num_rows == 1
    for bad in ("SELECT 1; SELECT 2", "DROP TABLE hosts", "SELECT * FROM nothing"):
        with pytest.raises(UsageError):
            record.sql(bad)
    with pytest.raises(UsageError):
        record.sql("SELECT * FROM read_text('/etc/hostname')")


def test_records_and_comparisons_show_themselves(record: rollbook.Record, tmp_path: Path) -> None:
    """As tables in which texts are never markup."""
    shown = record._repr_html_()
    assert "&lt;b&gt;x" in shown
    assert "<b>" not in shown
    assert "wall_seconds" in shown
    other = rollbook.run(["sleep", "0.4"], results_dir=tmp_path, interval=0.2, report=False).record
    shown = rollbook.compare(record, other, results_dir=tmp_path)._repr_html_()
    assert "cannot tell" in shown
    assert "<b>" not in shown
