"""Collectors for MLPerf Storage on lab hosts, alone and in a benchmark base class, with one host that fails."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rollbook.mlpstorage import (
    EXEC_TYPE,
    ClusterInformation,
    FileSystemError,
    MultiHostTimeSeriesCollector,
    SSHClusterCollector,
    TimeSeriesData,
    collect_cluster_info,
    run_shared_fs_probe,
    validate_ssh_connectivity,
)
from rollbook.testing import Lab
from tests.mlpstorage.base import Benchmark, files_of
from tests.support.waits import until

LOGGER = logging.getLogger(__name__)
TIMEOUT = 180  # seconds for each host, on a busy machine


def test_ssh_collector(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """Data has the requested names; a host that is down has its error, which is logged."""
    lab["node03"].kill_sshd()
    names = ["node01:4", "node02", "node03", "node02"]
    collector = SSHClusterCollector(names, LOGGER, timeout_seconds=TIMEOUT, ssh_config=str(lab.ssh_config))
    assert (collector.hosts, collector.timeout, collector.max_workers) == (names, TIMEOUT, 10)
    assert collector.is_available()
    assert collector.get_collection_method() == "ssh"
    result = collector.collect()
    assert result.success
    assert list(result.data) == ["node01", "node02", "node03"]
    assert result.data["node01"]["hostname"] == "node01"
    assert set(result.data["node03"]) == {"hostname", "error"}
    assert [error.split(":")[0] for error in result.errors] == ["node03"]
    assert result.collection_method == "ssh"
    assert "SSH collection from node03 failed: " in caplog.text
    cluster = ClusterInformation.from_ssh_collection(result.data, LOGGER)
    assert (cluster.num_hosts, cluster.num_hosts_requested) == (2, 3)
    assert cluster.min_memory_bytes > 0
    assert set(collector.collect(["node02"], timeout=TIMEOUT).data) == {"node02"}
    options = ["-F", str(lab.ssh_config)]
    reached = validate_ssh_connectivity(["node01:2", "localhost", "node03", "a b"], TIMEOUT, ssh_options=options)
    assert [(name, ok) for name, ok, _ in reached] == [
        ("node01", True), ("localhost", True), ("node03", False), ("a b", False)
    ]  # fmt: skip


def test_time_series_collector(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """The result has a list of samples by requested name; a host that fails has samples with its error only."""
    lab["node03"].kill_sshd()
    collector = MultiHostTimeSeriesCollector(
        ["node01:2", "node02", "node03"],
        interval_seconds=0.2,
        ssh_timeout=TIMEOUT,
        logger=LOGGER,
        ssh_config=str(lab.ssh_config),
    )
    assert collector.hosts == ["node01", "node02", "node03"]
    began = time.monotonic()
    collector.start()
    assert time.monotonic() - began < 10, "start() waited for hosts"
    until(lambda: len(collector.get_hosts_with_data()) == 2 and len(collector.samples_by_host["node03"]) >= 3)
    found = collector.stop()
    assert list(found) == ["node01", "node02", "node03"]
    assert collector.samples_by_host is found
    assert collector.get_hosts_with_data() == found.data.hosts_collected == ["node01", "node02"]
    assert (found.data.collection_method, found.data.collection_interval_seconds) == ("ssh", 0.2)
    for host in ("node01", "node02"):
        full = found[host][-1]
        assert full["hostname"] == host
        assert {row["interface_name"] for row in full["netdev"]} == {"lo", "eth0"}
        assert "errors" not in full
    assert len(found["node03"]) >= 3
    assert caplog.text.count("MultiHostTimeSeriesCollector: node03 gave no samples: ") == 1
    for sample in found["node03"]:
        assert set(sample) == {"timestamp", "hostname", "errors"}
        assert sample["errors"]["ssh"]
    written = json.loads(json.dumps(found.data.to_dict()))
    assert TimeSeriesData.from_dict(written).to_dict() == written


def mpi_arguments(ssh_config: Path) -> dict[str, Any]:
    """The arguments with which Open MPI, if installed, uses this ssh configuration."""
    if shutil.which("mpirun") is None:
        return {}
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout
    ssh = f"ssh -F {ssh_config}"
    agent = f"--prtemca plm_ssh_agent '{ssh}'" if " 5." in version.split("\n")[0] else f"--mca plm_rsh_agent '{ssh}'"
    return {"mpi_args": agent}


def test_aliases_of_the_ssh_configuration_over_mpi(lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Hosts with names that only ssh resolves are complete, except for one that is down, which is named."""
    if shutil.which("mpirun") is None:
        pytest.skip("needs mpirun")
    names = {"gpu-a": "node01", "gpu-b": "node02", "gpu-c": "node03"}
    config = tmp_path / "config"
    entries = (f"Host {alias}\n  HostName {lab[name].address}\n" for alias, name in names.items())
    config.write_text("".join(entries) + Path(lab.ssh_config).read_text())
    lab["node03"].kill_sshd()
    options = mpi_arguments(config)
    found = collect_cluster_info(list(names), "mpirun", LOGGER, None, True, TIMEOUT, False, **options)
    assert found["gpu-c"].keys() == {"hostname", "error"}, found["gpu-c"]
    assert "MPI collection from gpu-c failed: " in caplog.text
    cluster = ClusterInformation.from_mpi_collection(found, LOGGER)
    assert {host.requested_name: host.hostname for host in cluster.host_info_list} == {
        "gpu-a": "node01", "gpu-b": "node02"
    }  # fmt: skip
    assert all(host.memory.total and host.cpu and host.disks is not None for host in cluster.host_info_list)
    assert [host["name"] for host in cluster.missing_hosts] == ["gpu-c"]


@pytest.mark.parametrize("transport", ["ssh", "mpi"])
def test_shared_file_system(lab: Lab, tmp_path: Path, transport: str, caplog: pytest.LogCaptureFixture) -> None:
    """A shared directory passes; hosts that do not see it or are down are named; no file is left."""
    if transport == "mpi" and shutil.which("mpirun") is None:
        pytest.skip("needs mpirun")
    mpi = {"mpi_bin": "mpirun", "allow_run_as_root": True, **mpi_arguments(lab.ssh_config)}
    options: dict[str, Any] = {
        "timeout_seconds": TIMEOUT,
        **(mpi if transport == "mpi" else {"ssh_config": str(lab.ssh_config)}),
    }
    hosts = ["node01:2", "node02"]
    # Lab hosts have their own /tmp, but share /var/tmp.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as shared:
        run_shared_fs_probe(shared, hosts, "run-1", LOGGER, **options)
        assert list(Path(shared).iterdir()) == []
        lab["node03"].kill_sshd()
        with pytest.raises(FileSystemError, match=r"cannot test .* on all hosts: node03: ") as caught:
            run_shared_fs_probe(shared, [*hosts, "node03"], "run-1", LOGGER, **options)
        assert caught.value.path == shared
        assert list(Path(shared).iterdir()) == []
    with pytest.raises(FileSystemError, match=r"not on a file system that all hosts share: node\[01-02\] did not see"):
        run_shared_fs_probe(str(tmp_path), hosts, "run-1", LOGGER, **options)
    assert list(tmp_path.iterdir()) == []
    assert "did not see a file of it" in caplog.text


@pytest.mark.parametrize("exec_type", [EXEC_TYPE.DOCKER, EXEC_TYPE.MPI])
def test_base_class_with_a_failing_host(
    lab: Lab, tmp_path: Path, exec_type: EXEC_TYPE, caplog: pytest.LogCaptureFixture
) -> None:
    """With one host down, over ssh or MPI, all files are written, and only this host is missing in them."""
    if exec_type == EXEC_TYPE.MPI and shutil.which("mpirun") is None:
        pytest.skip("needs mpirun")
    lab["node03"].kill_sshd()
    hosts = ["node01", "node02", "node03"]
    options = {"ssh": {"ssh_config": str(lab.ssh_config)}, "mpi": mpi_arguments(lab.ssh_config)}
    args = SimpleNamespace(
        timeseries_interval=0.2, hosts=hosts, exec_type=exec_type, mpi_bin="mpirun", allow_run_as_root=True,
        cluster_collection_timeout=TIMEOUT,
    )  # fmt: skip
    run = Benchmark(args, LOGGER, tmp_path / "out", options)
    run.run(lambda collector: len(collector.get_hosts_with_data()) == 2)
    files = files_of(tmp_path / "out", run)
    assert set(files) == {
        "20260801_120000_metadata.json", "20260801_120000_timeseries.json", "cluster_info.json"
    }  # fmt: skip
    cluster = files["cluster_info.json"]
    assert cluster["collection_method"] == ("mpi" if exec_type == EXEC_TYPE.MPI else "ssh"), caplog.text
    assert [host["hostname"] for host in cluster["hosts"]] == ["node01", "node02"]
    assert [host["name"] for host in cluster["missing_hosts"]] == ["node03"]
    assert (cluster["num_hosts"], cluster["num_hosts_requested"]) == (2, 3)
    assert cluster["min_memory_bytes"] > 0
    snapshots = files["20260801_120000_metadata.json"]["cluster_snapshots"]
    assert snapshots["end"]["num_hosts"] == 2
    series = files["20260801_120000_timeseries.json"]
    assert series["hosts_requested"] == hosts
    assert series["hosts_collected"] == ["node01", "node02"]
    assert all("errors" in sample for sample in series["samples_by_host"]["node03"])
    assert "node03" in caplog.text
