"""The catalogue of metrics: declarations, and metrics of other packages."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbook.checks import engine
from rollbook.checks.run_data import RunData
from rollbook.errors import RollbookError
from rollbook.metrics import catalogue
from rollbook.metrics.live import HostMetrics
from rollbook.metrics.metric import Metric, parts_of
from rollbook.records.record import Phase, Record
from rollbook.report.build import build
from rollbook.sources import catalogue as sources
from rollbook.sql import connection as store
from rollbook.sql.grids import open_tables
from rollbook.tables.derive import derive
from rollbook.testing.journals import Script
from tests.support.commands import Rollbook
from tests.support.plugged_metric import METRIC

ROOT = Path(__file__).parents[2]
SECOND = 10**9
START = 1_700_000_000 * SECOND


@pytest.mark.parametrize("metric", catalogue.METRICS, ids=lambda metric: metric.name)
def test_declarations(metric: Metric) -> None:
    """Each metric has a title, a description and a unit."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
    assert metric.title[0].isupper()
    assert metric.description[0].isupper()
    assert not metric.description.endswith(".")
    assert metric.unit
    assert len(metric.watch) <= 10


def test_names_are_unique() -> None:
    """No two metrics have the same name or the same chart title."""
    assert len(catalogue.load()) >= len(catalogue.METRICS)
    titles = [metric.title for metric in catalogue.METRICS]
    assert len(set(titles)) == len(titles)


def declared(**changed: Any) -> Metric:
    """A metric of /proc/diskstats."""
    fields: dict[str, Any] = {"formula": {"diskstats": "reads_completed"}, "devices": "x", "negligible": 1.0}
    return Metric("site", "Title", "1/s", "Text", **{**fields, **changed})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"formula": {"diskstats": "reads"}}, "diskstats has no column reads"),
        ({"formula": {"diskstats": "device_name"}}, "diskstats has no column device_name"),
        ({"formula": {"diskstats": "device_number"}}, "diskstats has no column device_number"),
        ({"formula": {"nothing": "x"}}, "nothing is not a table of samples"),
        ({"formula": {"mounts": "x"}}, "mounts is not a table of samples"),
        ({"where": {"device": "sda"}}, r"diskstats has no key device \(its keys: device_name\)"),
        (
            {"formula": {"meminfo": "free_kib"}, "devices": "", "where": {"kind": "x"}},
            r"meminfo has no key kind \(its keys: none\)",
        ),
        ({"total": "median"}, "median is not a metric of x"),
        ({"devices": "rates"}, "a view cannot be called rates"),
        ({"devices": "net_dev"}, "a view cannot be called net_dev"),
        ({"devices": "counted_net_dev"}, "a view cannot be called counted_net_dev"),
    ],
)
def test_invalid_metrics(changed: dict[str, Any], message: str) -> None:
    """The message names the metric and the error."""
    with pytest.raises(RollbookError, match=rf"site: {message}"):
        parts_of({"site": declared(**changed)})


def test_weights_of_other_rows() -> None:
    """A mean is weighted row by row, so the weight must come from the same rows."""
    weight = declared(where={"device_name": ("sda", "sdb")})
    metrics = {"weight": dataclasses.replace(weight, name="weight"), "site": declared(total="weight")}
    with pytest.raises(RollbookError, match="site: weight does not come from the same rows"):
        parts_of(metrics)
    parts_of(metrics | {"site": declared(total="weight", where={"device_name": ("sda", "sdb")})})


@pytest.mark.parametrize("changed", [{"negligible": 0.0}, {"formula": {}}])
def test_incomplete_metrics(changed: dict[str, Any]) -> None:
    """A metric without a formula is rejected, and so is a compared metric without `negligible`."""
    with pytest.raises(ValueError, match="site"):
        declared(**changed)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, dict[str, str]]]:
    """The entry points, by group, of another package with a source and a metric; tests may change them."""
    entries = {
        sources.GROUP: {"site_queue": "tests.support.plugged_metric"},
        catalogue.GROUP: {"site": "tests.support.plugged_metric:METRIC"},
    }

    def entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
        return [importlib.metadata.EntryPoint(name, value, group) for name, value in entries.get(group, {}).items()]

    caches = (sources.plugins, sources.source, catalogue.load, catalogue.parts, catalogue.watched)
    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    for cache in caches:
        cache.cache_clear()
    yield entries
    for cache in caches:
        cache.cache_clear()


def write_record(path: Path) -> Record:
    """Write a record of six hosts with two queues each; the last host serves fewer requests for a while."""
    script = Script(path / "raw", [f"n{host}" for host in range(6)], ["loadavg", "site_queue"])
    for host in range(6):
        script.connect(host)
        served = 0
        for second in range(60):
            served += 20 if host == 5 and 20 < second < 50 else 200
            page = f"a 3 {served}\nb 4 {served}\n"
            texts = {"loadavg": {"/proc/loadavg": "0.5 0 0 1/2 3\n"}, "site_queue": {"/proc/site_queue": page}}
            script.sample(START + second * SECOND, texts, host=host)
    script.close()
    _, _, hosts = derive(path)
    hosts.started_ns, hosts.ended_ns = START, START + 60 * SECOND
    hosts.phases = [Phase("work", START, START + 60 * SECOND)]
    return Record(path, {}, hosts)


def test_a_metric_of_another_package(package: dict[str, dict[str, str]], tmp_path: Path) -> None:
    """One declaration gives a column in `rates`, a view of devices, a chart, phase statistics and outliers."""
    del package
    run = write_record(tmp_path)
    with store.connect(run) as connection:
        rates = "SELECT host, max(site_served) FROM rates GROUP BY host ORDER BY host"
        assert connection.execute(rates).fetchall() == [(f"n{host}", 400) for host in range(6)]
        devices = "SELECT DISTINCT device, site_served FROM site_queues WHERE host = 'n0' AND site_served IS NOT NULL"
        assert sorted(connection.execute(devices).fetchall()) == [("a", 200), ("b", 200)]
        statistics = "SELECT phase, slowest_host FROM phase_stats WHERE metric = 'site_served'"
        assert connection.execute(statistics).fetchall() == [("work", "n5")]
    with open_tables(run) as tables:
        chart = next(chart for chart in build(run, tables).charts if chart.id == METRIC.name)
    assert (chart.title, chart.devices is not None) == ("Requests served", True)
    result = engine.evaluate(engine.rule("host-outlier"), RunData(run.hosts, path=tmp_path))
    (finding,) = result.findings
    assert finding.message.startswith("n5 requests served 0.10 × the median of 5 peers (40/s against 400/s)")
    live = HostMetrics(1.0)
    for second in (0, 1):
        live.begin()
        rows = sources.source("site_queue").parse({"/proc/site_queue": f"a 3 {7 * second}\n"})
        live.take("site_queue", rows, START + second * SECOND, second * SECOND)
        live.end(START + second * SECOND)
    assert live.values == {"site_served": 7.0}
    assert live.devices == {"a": {"site_served": 7.0}}


def test_texts_about_a_metric_of_another_package(package: dict[str, dict[str, str]], rollbook: Rollbook) -> None:
    """The reference describes it and the help of `query` names its view; an unusable metric does not break the help."""
    page = runpy.run_path(str(ROOT / "scripts" / "docs"))["metrics_page"]()
    assert "\n| [site_served](#site_served) | 1/s | Requests that left a queue |\n" in page
    section = page.partition("\n## site_served\n")[2]
    assert section.startswith("\nRequests served, 1/s: Requests that left a queue.\n\n- `served` over `site_queue`\n")
    assert "gpus, site_queues;" in " ".join(rollbook("query", "--help").out.split())
    package[catalogue.GROUP]["site"] = "tests.support.plugged_metric:missing"
    catalogue.load.cache_clear()
    assert "gpus;" in " ".join(rollbook("query", "--help").out.split())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tests.support.plugged_metric:SOURCE", "not iterable"),
        ("tests.support.plugged_metric:missing", "missing"),
        ("rollbook.metrics.catalogue:METRICS", "already a metric called cpu_busy"),
    ],
)
def test_a_metric_that_cannot_be_used(package: dict[str, dict[str, str]], value: str, message: str) -> None:
    """The error names the entry point."""
    package[catalogue.GROUP]["site"] = value
    with pytest.raises(RollbookError, match=rf"the metric site of {value} cannot be used: .*{message}"):
        catalogue.load()
