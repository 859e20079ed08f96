"""Timestamps of log lines: the node and the analysis are tested with the same cases."""

from __future__ import annotations

import datetime as dt
import time
import tomllib
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollbook.agent.log_window import time_of
from rollbook.bundle.log_times import line_time

DATA = tomllib.loads((Path(__file__).parents[1] / "data/bundle/log_times.toml").read_text())
NEAR: dt.datetime = DATA["near"]


@pytest.fixture
def _restore_time_zone() -> Iterator[None]:
    """Restore the time zone of this process after the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        yield
    time.tzset()


@pytest.mark.parametrize("case", DATA["case"], ids=lambda case: f"{case['line']} {case.get('zone', '')}")
@pytest.mark.usefixtures("_restore_time_zone")
def test_cases(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A time without a zone is in the node's zone; one without a year is in the last twelve months."""
    zone = case.get("zone", "UTC")
    found = line_time(case["line"], NEAR, NEAR - dt.timedelta(hours=1), zoneinfo.ZoneInfo(zone))
    assert found == case.get("time")
    if not case.get("only_analysis"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        on_node = time_of(case["line"].encode(), NEAR.timestamp())
        assert on_node == (case["time"].timestamp() if "time" in case else None)
