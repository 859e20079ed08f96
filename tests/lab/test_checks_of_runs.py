"""A real run in which hosts have faults: checks find them from the record alone, and the record verifies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollbook.checks import engine
from rollbook.checks.run_data import open_run_data
from rollbook.checks.verify import verify
from rollbook.mlpstorage import BenchmarkResult, BenchmarkRun, export_mlpstorage
from rollbook.records.document import encode, read
from rollbook.records.record import Record, RecordHosts
from rollbook.testing import Lab, LabHost
from tests.support.commands import ROLLBOOK
from tests.support.launchers import have_returned, read_progress
from tests.support.records import is_whole
from tests.support.waits import READ_PAUSE, until

ERRORS = "/sys/devices/system/edac/mc/mc0/ce_count"
DRIVE = {
    "/sys/class/nvme/nvme0/transport": "pcie\n",
    "/sys/class/nvme/nvme1/transport": "tcp\n",  # the program fails for it
    "/run/health": '{"critical_warning":0,"percent_used":3,"media_errors":4}\n',
}
NVME = """#!/bin/sh
[ "$*" = "smart-log -o json /dev/nvme0" ] && cat /run/health
"""
WAIT = """import pathlib, sys, time
pathlib.Path(sys.argv[1]).touch()
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.1)
"""


def record_run(lab: Lab, directory: Path, meanwhile: Callable[[], None]) -> Path:
    """Run a command and call `meanwhile` while it runs; returns the record."""
    started, done = directory / "started", directory / "done"
    argv = [*ROLLBOOK, "run", "--results-dir", str(directory / "results"), "--type", "training", "--no-report"]
    argv += ["--timeseries-interval", "0.5", "--ssh-config", str(lab.ssh_config), "-w", ",".join(lab.names)]
    argv += ["--via", "ssh", "--timeout", "180", "--", sys.executable, "-c", WAIT, str(started), str(done)]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}) as run:
        try:
            until(started.exists)
            meanwhile()
        finally:
            done.touch()
        _, messages = run.communicate(timeout=600)
    assert run.returncode == 0, messages
    (path,) = (directory / "results" / "training").iterdir()
    return path


def findings_by_rule(document: dict[str, Any]) -> dict[str, list[str]]:
    """The hosts of the findings of each rule that has findings."""
    return {
        result["id"]: sorted({host for finding in result["findings"] for host in finding.get("hosts", [])})
        for result in document["rules"]
        if result.get("findings")
    }


def add_network_card(host: LabHost) -> None:
    """Give a host a second network card; the other end of its cable is on the same host."""
    host.run(["ip", "link", "add", "eth1", "type", "veth", "peer", "name", "cable"], check=True)
    address = f"192.168.77.{int(host.name[-2:])}/24"
    for command in (f"addr add {address} dev eth1", "link set eth1 up", "link set cable up"):
        host.run(["ip", *command.split()], check=True)


def test_faults_during_a_run_are_found_in_its_record(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """A lost link, a reboot, memory errors and drive errors are found on their hosts; a fifth host has no finding."""
    lab = make_lab(5, kind="namespaces")
    for host in lab:
        host.overlay({ERRORS: "7\n", "/proc/loadavg": "0.01 0.01 0.01 1/100 4242\n"})
        host.overlay(DRIVE)
        host.programs({"nvme": NVME})
        add_network_card(host)

    def cause_faults() -> None:
        (raw,) = tmp_path.glob("results/*/*/raw")
        until(lambda: read_progress(raw, lab.names)["node02"].beats, pause=READ_PAUSE)  # the gap begins with a sample
        lab["node01"].run(["ip", "link", "set", "cable", "down"], check=True)
        lab["node02"].reboot()
        add_network_card(lab["node02"])
        lab["node03"].overlay({ERRORS: "19\n"})
        lab["node04"].overlay({"/run/health": DRIVE["/run/health"].replace("4}", "6}")})
        until(lambda: have_returned(read_progress(raw, lab.names), ["node02"], 0), pause=READ_PAUSE)

    path = record_run(lab, tmp_path, cause_faults)
    document = json.loads((path / "findings.json").read_bytes())
    named = findings_by_rule(document)
    assert named["link-changed"] == ["node01"]
    assert named["host-rebooted"] == ["node02"]
    assert named["memory-errors"] == ["node03"]
    assert named["nvme-media-errors"] == ["node04"]
    [fine] = [host for host in Record.open(path).hosts.series if host.name == "node05"]
    assert is_whole(fine)
    busy = fine.status != "complete" or fine.gaps or fine.is_sparse  # the machine was: beats were missed
    assert [rule for rule in named if "node05" in named[rule]] == (["series-incomplete"] if busy else [])
    findings = {result["id"]: result.get("findings", []) for result in document["rules"]}
    assert findings["nvme-media-errors"][0]["message"] == "nvme_smart nvme0: media_errors rose by 2 (node04)"
    gap, hosts = findings["host-rebooted"][0]["evidence"], Record.open(path).hosts
    assert hosts.started_ns < gap["start_ns"] < gap["end_ns"] < hosts.ended_ns
    again = json.loads(encode(engine.check(open_run_data(path))))
    assert findings_by_rule(again) == named

    assert verify(path).problems == []
    assert encode(read(path / "hosts.json", RecordHosts)) == (path / "hosts.json").read_bytes()
    written = export_mlpstorage(Record.open(path), tmp_path / "leaf")
    assert len(list((tmp_path / "leaf").glob("*_metadata.json"))) == 1
    assert {file.name.partition("_")[0] for file in written} == {"training"}
    metadata = json.loads(written[0].read_bytes())
    assert {"benchmark_type", "run_datetime", "num_processes", "parameters"} <= set(metadata)
    run = BenchmarkRun(BenchmarkResult(tmp_path / "leaf", None))
    assert run.system_info is not None
    assert [host.hostname for host in run.system_info.host_info_list] == lab.names
    series = json.loads((tmp_path / "leaf" / metadata["timeseries_data"]["file"]).read_bytes())
    assert set(series["hosts_collected"]) == set(lab.names)
