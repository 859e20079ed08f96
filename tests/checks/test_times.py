"""The time at which a counter rose, from the tables of the run, for the hosts and the device of a finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from rollbook.checks import engine
from rollbook.checks.times import rise
from rollbook.records.findings import Change
from tests.support.records import RunCase

SECOND = 10**9


def write(record: Path, source: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
    """Write a table of the series; its column `ts` is in seconds."""
    (record / "series").mkdir(exist_ok=True)
    values = ", ".join(map(str, rows))
    duckdb.sql(
        f"copy (select * replace (make_timestamp_ns(ts::BIGINT * {SECOND}) as ts) from (values {values}) t({columns})) "
        f"to '{record / 'series' / source}.parquet' (format parquet)"
    )


def test_a_finding_points_to_the_time_of_the_rise(tmp_path: Path) -> None:
    """The period is from the sample before the first rise to the last rise; other hosts do not count."""
    rows = [("n1", s, 5, 7) for s in range(0, 60, 10)]
    rows += [("n2", 0, 5, 7), ("n2", 10, 5, 7), ("n2", 20, 5, 9), ("n2", 30, 5, 12), ("n2", 40, 5, 12)]
    write(tmp_path, "thermal_throttle", "host, ts, core, package", rows)
    run = RunCase(
        about="",
        outcome="warn",
        start={"n[1-2]": {"thermal_throttle": {"core": 5, "package": 7}}},
        end={"n1": {"thermal_throttle": {"core": 5, "package": 7}}, "n2": {"thermal_throttle": {"package": 12}}},
    ).run_data()
    run.path = tmp_path
    (finding,) = engine.evaluate(engine.rule("cpu-throttled"), run).findings
    assert finding.hosts == ["n2"]
    assert finding.evidence == {"start_ns": 10 * SECOND, "end_ns": 30 * SECOND}


@pytest.mark.parametrize(
    ("field", "row", "found"),
    [
        ("infiniband_counters.errors.symbol_error", "mlx5_0:1", {"start_ns": 0, "end_ns": 10 * SECOND}),
        ("infiniband_counters.errors.symbol_error", "mlx5_1:1", {}),
        ("infiniband_counters.errors.link_downed", "mlx5_0:1", {}),
        ('infiniband_counters.errors.x" from', "mlx5_0:1", {}),
        ("edac.corrected", "mc0", {}),
    ],
)
def test_device_and_column(tmp_path: Path, field: str, row: str, found: dict[str, int]) -> None:
    """Only rows of the device count; without the column or the table there is no time."""
    rows = [("n1", 0, "mlx5_0:1", 3), ("n1", 10, "mlx5_0:1", 4), ("n1", 0, "mlx5_1:1", 0), ("n1", 10, "mlx5_1:1", 0)]
    write(tmp_path, "infiniband_counters", "host, ts, port, symbol_error", rows)
    assert rise(tmp_path, Change(field, 3, 4, row), ["n1"]) == found
    assert rise(None, Change(field, 3, 4, row), ["n1"]) == {}
