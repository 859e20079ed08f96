"""A short fault campaign: every kind once. `bench/faults` runs all kinds many times."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import duckdb
import pytest

from rollbook.testing import Lab
from tests.support import faults
from tests.support.fault_kinds import KINDS
from tests.support.faults import GROUPS, Campaign, Result, Run, in_order
from tests.support.waits import until_sampled

SEED = 1  # bench/faults uses others
pytestmark = pytest.mark.alone  # several recordings at a time keep the machine busy


@pytest.fixture(scope="module")
def campaign(session_lab: Lab) -> Iterator[Campaign]:
    """One campaign for all kinds."""
    session_lab.restore()
    with Campaign(session_lab, SEED) as made:
        yield made


@pytest.fixture(scope="module")
def results(campaign: Campaign) -> Iterator[dict[str, Future[Result]]]:
    """The results of all kinds, which run four at a time."""
    with ThreadPoolExecutor(len(campaign.lab) // 2) as pool:
        yield {kind.name: pool.submit(campaign.run, kind) for kind in in_order(KINDS.values())}


def test_every_group_has_a_kind() -> None:
    """There are at least 30 kinds, and every group has one."""
    assert {kind.group for kind in KINDS.values()} == set(GROUPS)
    assert len(KINDS) >= 30


@pytest.mark.parametrize("name", [kind.name for kind in in_order(KINDS.values())])
def test_fault(campaign: Campaign, results: dict[str, Future[Result]], name: str) -> None:
    """After the fault there is no wrong value, unreported loss, leftover or wrong exit code."""
    assert results[name].result().problems() == [], f"seed {campaign.seed}"


def test_campaign_checks_detect_problems(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed value, a missing row, a leftover file, a leftover process and a wrong exit code are all counted."""
    monkeypatch.setattr(faults, "LEAVING", 1.0)
    run = Run(campaign, "checks")
    try:
        process = run.start()
        until_sampled(run.results, hosts=2, samples=12)
        run.stop(process, (1,))
        assert len(run.result.wrong_exit_codes) == 1
        table = run.path / "series" / "stat_totals.parquet"
        changed = "* REPLACE (ctxt - 1000000 AS ctxt)"
        duckdb.execute(f"COPY (SELECT {changed} FROM '{table}' ORDER BY ts DESC LIMIT 8) TO '{table}' (FORMAT parquet)")
        (run.temporary / "rollbook-left").touch()
        campaign.lab[run.host.name].run(["sh", "-c", "sleep 60 >/dev/null 2>&1 &"])
        run.check()
        assert len(run.result.wrong_values) == 8
        assert any("stat_totals" in problem for problem in run.result.unreported_losses)
        assert any("rollbook-left" in problem for problem in run.result.leftovers)
        assert any("sleep 60" in problem for problem in run.result.leftovers)
    finally:
        run.close()
