"""Notebooks: calls inside a running event loop, data frames from SQL, and HTML of records and comparisons."""

from __future__ import annotations

import asyncio
import math
import re
import shutil
from pathlib import Path

import pytest

import rollbook
from rollbook.errors import UsageError
from rollbook.report.build import build
from rollbook.report.notebook import figure
from rollbook.sql.grids import open_tables


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> rollbook.Record:
    """A record of a short run whose name contains markup."""
    results = tmp_path_factory.mktemp("notebook")
    return rollbook.run(["sleep", "1.5"], name="<b>x", results_dir=results, interval=0.2, report=False).record


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
    """The relation stays valid and gives data frames; only one SELECT is allowed, and no other file can be read."""
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


def test_html_of_records_and_comparisons(record: rollbook.Record, tmp_path: Path) -> None:
    """The HTML has tables with escaped texts, and the charts that the pages show first."""
    shown = record._repr_html_()
    assert "&lt;b&gt;x" in shown
    assert "<b>" not in shown
    assert "wall_seconds" in shown
    with open_tables(record) as tables:
        charts = [chart for chart in build(record, tables).charts if chart.highlight is not None]
    titles = [chart.title for chart in sorted(charts, key=lambda chart: chart.highlight or 0)]
    assert re.findall(r">([^<]+): up to ", shown) == titles
    assert shown.count("<svg") == len(titles) > 0
    other = rollbook.run(["sleep", "1.5"], results_dir=tmp_path, interval=0.2, report=False).record
    compared = rollbook.compare(record, other, results_dir=tmp_path)
    shown = compared._repr_html_()
    assert "cannot tell" in shown
    assert "<b>" not in shown
    metrics = [row for row in compared.rows if row.kind == "metric"]  # fewer on an idle machine
    assert shown.count("<svg") == min(6, len(metrics)) > 0
    shutil.rmtree(other.path)
    assert "<svg" not in compared._repr_html_(), "without the records there are no charts"


def test_lines_of_a_chart() -> None:
    """A gap stays a gap, a sample without neighbours is a dot, and peaks of many samples survive in the band."""
    shown = figure("a < b", "%", 10.0, [([1.0, 2.0, math.nan, 4.0], "red")])
    assert re.findall(r'd="([^"]*)" fill="none"', shown) == ["M0.0,76.5L100.0,57.0M300.0,18.0h0"]
    assert "a &lt; b: up to 4 %" in shown
    values = [0.0] * 1000
    values[555] = 100.0
    shown = figure("x", "%", 10.0, [(values, "red")], band=(values, values))
    outline = re.search(r'd="([^"]*)" fill="red"', shown)
    assert outline is not None
    assert ",18.0L" in outline[1]
    assert len(shown) < 10_000


def test_a_record_without_samples(tmp_path: Path) -> None:
    """Its HTML has a table and no charts."""
    shown = rollbook.run(["true"], results_dir=tmp_path, interval=0, report=False).record._repr_html_()
    assert "<table>" in shown
    assert "<svg" not in shown
