"""MLPerf Storage's collectors on this machine, alone and in a benchmark base class."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rollbook.errors import RollbookError
from rollbook.mlpstorage import (
    BenchmarkRun,
    ClusterInformation,
    FileSystemError,
    MPIClusterCollector,
    MultiHostTimeSeriesCollector,
    SSHClusterCollector,
    TimeSeriesCollector,
    collect_cluster_info,
    run_shared_fs_probe,
)
from rollbook.records.document import Snapshot
from tests.mlpstorage.base import Benchmark, files_of
from tests.mlpstorage.test_cluster import facts
from tests.support.records import host_results
from tests.support.waits import until

LOGGER = logging.getLogger(__name__)
METRICS = {"diskstats", "vmstat", "meminfo", "loadavg", "netdev"}


def test_this_machine_under_two_names() -> None:
    """Each requested name has its record, and the memory counts once; without hosts there is nothing to collect."""
    result = SSHClusterCollector(["localhost", "127.0.0.1"], LOGGER).collect()
    assert (list(result.data), result.collection_method) == (["localhost", "127.0.0.1"], "local")
    cluster = ClusterInformation.from_ssh_collection(result.data, LOGGER)
    assert (cluster.num_hosts, cluster.missing_hosts) == (1, [])
    local = SSHClusterCollector([], LOGGER).collect_local()
    ((name, info),) = local.data.items()
    assert (name, local.success, local.collection_method) == (info["hostname"], True, "local")
    assert cluster.total_memory_bytes == info["meminfo"]["MemTotal"] * 1024
    with pytest.raises(ValueError, match="no hosts"):
        SSHClusterCollector([], LOGGER).collect()


def test_this_machine_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is not a success and has the reason."""
    taken = Snapshot.of("2026-08-01T00:00:00Z", host_results({"n1": {"@status": "failed", "@reason": "no python3"}}))
    monkeypatch.setattr("rollbook.mlpstorage.collector.snapshot", lambda *_, **__: taken)
    found = SSHClusterCollector([], LOGGER).collect_local()
    assert (found.success, found.errors) == (False, ["n1: failed: no python3"])


def test_mpi_falls_back_to_this_machine(caplog: pytest.LogCaptureFixture) -> None:
    """If the launcher does not exist, the error is kept, and the method is local_fallback."""
    caplog.set_level(logging.INFO)
    collector = MPIClusterCollector(["node01", "node02"], "no-such-mpirun", LOGGER, timeout_seconds=10)
    assert not collector.is_available()
    with pytest.raises(RuntimeError, match=r"^MPI collection failed: .*no-such-mpirun"):
        collector.collect()
    for hosts in (["node01", "node02"], []):
        found = collect_cluster_info(hosts, "no-such-mpirun", LOGGER, timeout_seconds=10)
        about = found["_metadata"]
        assert (about["collection_method"], len(about["hosts_collected"])) == ("local_fallback", 1)
        assert about["requested_hosts"] == hosts
        assert about["mpi_error"].startswith("MPI collection failed: ")
    assert "Falling back to local-only collection" in caplog.text
    with pytest.raises(RuntimeError, match="MPI collection failed: no hosts"):
        collect_cluster_info([], "mpirun", LOGGER, fallback_to_local=False)


def test_both_argument_orders_of_the_mpi_collector() -> None:
    """A boolean in the position of the results directory is allow_run_as_root."""
    earlier = MPIClusterCollector(["n1"], "mpirun", LOGGER, True, 5)
    later = MPIClusterCollector(["n1"], "mpirun", LOGGER, "/results", True, 5, "/stage", None, "ann")
    for collector in (earlier, later):
        assert (collector.allow_run_as_root, collector.timeout) == (True, 5)
    assert (earlier.results_dir, later.results_dir) == (None, "/results")
    assert (later.shared_staging_dir, later.ssh_username) == ("/stage", "ann")


def test_hosts_with_the_same_hostname_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first host has the hostname as its key, the others their requested name; a failed host has its error."""
    hosts = host_results({"n[1-3]": {**facts(), "@hostname": "image"}, "n4": {"@status": "refused", "@reason": "key"}})
    taken = Snapshot.of("2026-08-01T00:00:00Z", hosts)
    monkeypatch.setattr("rollbook.mlpstorage.collector.snapshot", lambda *_, **__: taken)
    found = MPIClusterCollector(["n1", "n2", "n3", "n4"], "mpirun", LOGGER).collect()
    assert found.pop("n4") == {"hostname": "n4", "error": "refused: key"}
    assert {name: info["requested_name"] for name, info in found.items()} == {"image": "n1", "n2": "n2", "n3": "n3"}


def test_series_of_this_machine() -> None:
    """`samples` grows while the collector runs; the thread is not a daemon and has the tool's name."""
    collector = TimeSeriesCollector(interval_seconds=0.1)
    assert (collector.start_time, collector.end_time, collector.is_running) == (None, None, False)
    collector.start()
    assert collector.is_running
    (thread,) = (one for one in threading.enumerate() if one.name == "TimeSeriesCollector")
    assert not thread.daemon
    with pytest.raises(RuntimeError, match="already started"):
        collector.start()
    until(lambda: len(collector.samples) > 3)
    samples = collector.stop()
    assert isinstance(samples, list)
    assert collector.stop() is samples is collector.samples
    assert not collector.is_running
    assert collector.end_time is not None
    assert set(samples[-1]) >= METRICS
    assert samples.data.collection_method == "local"
    assert samples.data.num_samples == len(samples)
    with pytest.raises(RuntimeError, match="already stopped"):
        collector.start()
    with pytest.raises(RuntimeError, match="not started"):
        TimeSeriesCollector().stop()


def test_sample_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Above the limit every second sample is dropped, and the data has the new interval; 0 keeps none."""
    collector = TimeSeriesCollector(interval_seconds=0.1, max_samples=4, logger=LOGGER)
    collector.start()
    until(lambda: len(collector.samples) >= 3)
    first = collector.samples[:2]
    until(lambda: collector.samples[:2] != first)
    samples = collector.stop()
    assert 2 <= len(samples) <= 4
    assert samples.data.collection_interval_seconds in [0.1 * 2**times for times in range(1, 10)]
    assert sum("samples per host" in record.message for record in caplog.records) == 1
    none = TimeSeriesCollector(interval_seconds=0.1, max_samples=0)
    none.start()
    time.sleep(0.3)
    assert none.stop() == []


def test_series_without_hosts_samples_nothing() -> None:
    """It does not sample this machine instead."""
    collector = MultiHostTimeSeriesCollector([], interval_seconds=0.1)
    collector.start()
    time.sleep(0.3)
    assert collector.stop() == {}
    assert collector.get_hosts_with_data() == []


def test_series_that_cannot_start() -> None:
    """`start` raises the error, not only `stop`."""
    with pytest.raises(RollbookError, match="no-such-way"):
        MultiHostTimeSeriesCollector(["localhost"], via="no-such-way").start()


@pytest.mark.parametrize("end", ["raise SystemExit(3)", "import os; os._exit(3)"])
def test_program_that_ends_without_stop(end: str) -> None:
    """The thread of the collector, which is not a daemon, does not keep the interpreter running."""
    script = f"from rollbook.mlpstorage import TimeSeriesCollector; TimeSeriesCollector(0.1).start(); {end}"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 3


def test_base_class_local(tmp_path: Path) -> None:
    """Without hosts, the series is of this machine, and the metadata can be read back."""
    args = SimpleNamespace(timeseries_interval=0.1)
    run = Benchmark(args, LOGGER, tmp_path / "out", {"ssh": {}})
    run.run(lambda collector: len(collector.samples) > 2)
    files = files_of(tmp_path / "out", run)
    assert set(files) == {"20260801_120000_metadata.json", "20260801_120000_timeseries.json"}
    series = files["20260801_120000_timeseries.json"]
    assert (series["collection_method"], len(series["hosts_collected"])) == ("local", 1)
    assert series["num_samples"] > 2
    assert BenchmarkRun.from_result_dir(tmp_path / "out", LOGGER).parameters == {"num_users": 1}


@pytest.mark.parametrize("place", ["/no/such/directory", "/var/tmp/a*b"])
def test_shared_file_system_that_cannot_be_tested(place: str) -> None:
    """The error names the directory, before any host is contacted; one host needs no test."""
    with pytest.raises(FileSystemError, match=f"cannot test {re.escape(place)}: "):
        run_shared_fs_probe(place, ["a", "b"], "run-1", LOGGER)
    for hosts in (None, [], ["a"], ["a:4", "a"]):
        run_shared_fs_probe(place, hosts, "run-1", LOGGER)
