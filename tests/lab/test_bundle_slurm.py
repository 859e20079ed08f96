"""The controller's view in an issue report, with a real Slurm."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollbook.bundle import slurm
from rollbook.bundle.cluster import ClusterPart
from rollbook.bundle.summary import Window
from rollbook.testing.slurm import SlurmLab


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmLab]:
    """A controller with two nodes."""
    with SlurmLab(["n1", "n2"]) as lab:
        yield lab


def test_controller_view(cluster: SlurmLab, tmp_path: Path) -> None:
    """Reasons, nodes, settings and statistics, redacted; without accounting only sacct fails."""
    cluster.ask("scontrol", "update", "node=n2", "state=drain", "reason=Kill task failed token=canary123")
    window = Window(since=dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
    part = ClusterPart(tmp_path, b"s", cluster.environ)
    items = {item.id: item for item in asyncio.run(slurm.collect(part, window))}
    for name in ("slurm-nodes", "slurm-settings", "slurm-statistics"):
        assert items[name].status == "complete", items[name]
    reasons = (tmp_path / "cluster/slurm-nodes/reasons.txt").read_text()
    assert "Kill task failed token=***" in reasons
    assert "n2" in reasons
    nodes = (tmp_path / "cluster/slurm-nodes/nodes.txt").read_text()
    assert nodes.count("NodeName=") == 2
    assert "canary" not in nodes
    assert "SlurmctldHost" in (tmp_path / "cluster/slurm-settings/config.txt").read_text()
    assert items["slurm-jobs"].status == "failed"
    assert "accounting" in items["slurm-jobs"].reason.lower()
    assert [Path(file.path).name for file in items["slurm-jobs"].files][:1] == ["squeue.txt"]
    assert part.redactions


def test_controller_does_not_answer(cluster: SlurmLab, tmp_path: Path) -> None:
    """Every query ends within its timeout and has a reason."""
    environ = {**cluster.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    text = Path(cluster.environ["SLURM_CONF"]).read_text()
    lines = [line if not line.startswith("SlurmctldPort") else "SlurmctldPort=9" for line in text.splitlines()]
    (tmp_path / "slurm.conf").write_text("\n".join([*lines, "MessageTimeout=2", ""]))
    part = ClusterPart(tmp_path / "b", b"s", environ)
    part.limit(60)
    items = {item.id: item for item in asyncio.run(slurm.collect(part, Window()))}
    assert items["slurm-nodes"].status == "failed"
    assert "Unable to contact slurm controller" in items["slurm-nodes"].reason


def test_without_slurm(tmp_path: Path) -> None:
    """Without Slurm there is one item, with the status absent."""
    part = ClusterPart(tmp_path, b"s", {"PATH": str(tmp_path)})
    results = asyncio.run(slurm.collect(part, Window()))
    assert [(item.id, item.status) for item in results] == [("slurm", "absent")]
    assert list(tmp_path.iterdir()) == []
