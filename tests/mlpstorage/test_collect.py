"""MLPerf Storage's collectors on real hosts: same signatures, every host named, samples on the same instants."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from typing import Any

import pytest

from rollbook.errors import RollbookError
from rollbook.mlpstorage import (
    ClusterInformation,
    MPIClusterCollector,
    MultiHostTimeSeriesCollector,
    SSHClusterCollector,
    TimeSeriesCollector,
    TimeSeriesData,
    collect_cluster_info,
)
from rollbook.testing import Lab

LOGGER = logging.getLogger(__name__)


def test_ssh_collector(lab: Lab) -> None:
    """Data by the names asked for; a host that is down is an error and no host with zero memory."""
    lab["node03"].kill_sshd()
    collector = SSHClusterCollector(
        ["node01", "node02", "node03"], LOGGER, timeout_seconds=20, ssh_config=str(lab.ssh_config)
    )
    assert collector.is_available()
    assert collector.get_collection_method() == "ssh"
    result = collector.collect()
    assert result.success
    assert set(result.data) == {"node01", "node02", "node03"}
    assert result.data["node01"]["hostname"] == "node01"
    assert [error.split(":")[0] for error in result.errors] == ["node03"]
    assert result.collection_method == "ssh"
    cluster = ClusterInformation.from_mpi_collection(result.data, LOGGER)
    assert cluster.num_hosts == 2
    assert cluster.min_memory_bytes > 0
    assert cluster.validate_cluster_consistency() == []


def test_collect_takes_other_hosts_than_the_constructor(lab: Lab) -> None:
    """As the interface promises."""
    collector = SSHClusterCollector(["node01"], LOGGER, ssh_config=str(lab.ssh_config))
    assert set(collector.collect(["node02"], timeout=20).data) == {"node02"}
    (local,) = collector.collect_local().data.values()
    assert local["meminfo"]["MemTotal"] > 0


def test_mpi_falls_back_to_this_machine_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """A launcher that is not there: the error is kept, and the method is never called mpi."""
    collector = MPIClusterCollector(["node01", "node02"], "no-such-mpirun", LOGGER, timeout_seconds=10)
    assert not collector.is_available()
    with pytest.raises(RuntimeError, match="no-such-mpirun"):
        collector.collect()
    found = collect_cluster_info(["node01", "node02"], "no-such-mpirun", LOGGER, timeout_seconds=10)
    about = found["_metadata"]
    assert (about["collection_method"], about["hosts_collected"]) == ("local_fallback", 1)
    assert about["requested_hosts"] == ["node01", "node02"]
    assert "no-such-mpirun" in about["mpi_error"]
    assert "only this machine" in caplog.text
    cluster = ClusterInformation.from_mpi_collection(found, LOGGER)
    assert (cluster.collection_method, cluster.num_hosts) == ("local_fallback", 1)
    with pytest.raises(ValueError, match="no host"):
        MPIClusterCollector([], "mpirun", LOGGER)


def sampled(collector: Any, seconds: float) -> TimeSeriesData:
    """What a collector gives in so many seconds."""
    collector.start()
    assert collector.is_running
    time.sleep(seconds)
    data: TimeSeriesData = collector.stop()
    assert not collector.is_running
    return data


def test_series_of_hosts(lab: Lab) -> None:
    """One stream per host; the keys of their samples; a host that is down is missing and named."""
    lab["node03"].kill_sshd()
    collector = MultiHostTimeSeriesCollector(
        ["node01", "node02", "node03"], interval_seconds=0.2, ssh_timeout=20, ssh_config=str(lab.ssh_config), via="ssh"
    )
    data = sampled(collector, 2.0)
    assert data.hosts_requested == ["node01", "node02", "node03"]
    assert data.hosts_collected == ["node01", "node02"]
    assert (data.collection_method, data.collection_interval_seconds) == ("ssh", 0.2)
    for host, samples in data.samples_by_host.items():
        assert len(samples) >= 5
        full = samples[-1]
        assert full.hostname == host
        assert full.meminfo
        assert full.meminfo["MemTotal"] > 0
        assert full.vmstat
        assert full.loadavg
        assert {row["interface_name"] for row in full.netdev or []} == {"lo", "eth0"}
        assert full.diskstats
        assert full.errors is None
    assert data.num_samples == sum(len(samples) for samples in data.samples_by_host.values())
    written = json.loads(json.dumps(data.to_dict()))
    assert TimeSeriesData.from_dict(written).to_dict() == written


def test_series_of_this_machine_keeps_the_end() -> None:
    """Past the limit every second sample goes, and the last beats stay."""
    collector = TimeSeriesCollector(interval_seconds=0.1, max_samples=4)
    data = sampled(collector, 1.5)
    (samples,) = data.samples_by_host.values()
    assert 2 <= len(samples) <= 4
    assert data.collection_interval_seconds in (0.4, 0.8)
    assert data.collection_method == "local"
    assert collector.stop() is data
    with pytest.raises(RuntimeError, match="not started"):
        TimeSeriesCollector().stop()


def test_series_without_a_limit() -> None:
    """0 keeps all; hosts are named as they were asked, without their slots."""
    data = sampled(MultiHostTimeSeriesCollector(["localhost:4"], interval_seconds=0.1, max_samples=0), 1.0)
    assert data.num_samples > 4
    assert data.collection_interval_seconds == 0.1
    assert data.hosts_requested == data.hosts_collected == ["localhost"]


def test_a_series_that_cannot_begin_says_so() -> None:
    """Not only when it is over."""
    with pytest.raises(RollbookError, match=r"n\[1-"):
        MultiHostTimeSeriesCollector(["n[1-"]).start()
    with pytest.raises(RollbookError, match="no-such-way"):
        MultiHostTimeSeriesCollector(["localhost"], via="no-such-way").start()


def test_a_program_that_ends_without_stop_ends() -> None:
    """Whatever it dies of."""
    script = (
        "from rollbook.mlpstorage import TimeSeriesCollector; TimeSeriesCollector(0.1).start(); raise SystemExit(3)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=30).returncode == 3


@pytest.mark.needs("mpirun")
def test_mpi_collector() -> None:
    """A real launcher on this machine: data by the name the host gives itself, method mpi."""
    options = {"allow_run_as_root": True, "oversubscribe": True}
    found = collect_cluster_info(
        ["localhost"], "mpirun", LOGGER, timeout_seconds=30, fallback_to_local=False, **options
    )
    assert found.pop("_metadata")["collection_method"] == "mpi"
    ((name, info),) = found.items()
    assert name == info["hostname"]
    assert info["vmstat"]
    assert info["mounts"]
