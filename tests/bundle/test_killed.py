"""Collector, agent or node is killed at any moment: the bundle is valid, and resuming completes it."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rollbook.bundle.analysis import analyse
from rollbook.bundle.cluster_items import ClusterOptions
from rollbook.bundle.collect import Reach, collect
from rollbook.bundle.directory import READ, BundleDirectory, read_summary
from rollbook.bundle.items import Item
from rollbook.bundle.reading import Bundle
from rollbook.bundle.request import Request
from rollbook.bundle.summary import BundleSummary, File, ItemResult, ItemStatus, NodeResult
from rollbook.errors import RecordError
from rollbook.hosts import parse_hosts
from rollbook.records.hosts import HostResult
from rollbook.records.record import Record
from rollbook.sources.block import Block
from rollbook.transports.local import Local
from tests.support.launchers import send_signal
from tests.support.waits import is_alive

MOMENTS = 10
ITEMS = [
    Item(id=f"item-{number:02}", title="", commands=(f"echo begun {number}; sleep 0.1; seq 20000; echo {number}",))
    for number in range(8)
]
HOSTS = parse_hosts(["localhost"])
SCRIPT = """
import asyncio, sys
from pathlib import Path
from tests.bundle.test_killed import collect_bundle
collect_bundle(Path(sys.argv[1]))
"""


def create_bundle(path: Path) -> BundleDirectory:
    """Create a bundle."""
    request = Request(nodes=["localhost"], items=ITEMS)
    return BundleDirectory.create(path / "x.tar.gz", request, HOSTS, dt.datetime.now(dt.UTC))


def collect_bundle(path: Path) -> BundleSummary:
    """Collect or resume the bundle."""
    directory = BundleDirectory.open(path / "x") if (path / "x").exists() else create_bundle(path)
    summary = asyncio.run(collect(directory, ITEMS, HOSTS, Reach(lambda _: Local(), timeout=600)))
    directory.write_record()
    return summary


def check_valid(path: Path) -> BundleSummary:
    """Check that every file in the summary exists with its size and hash, and that the bundle is a record."""
    summary = read_summary(path / "x")
    assert [node.node for node in summary.results] == ["localhost"]
    for item in summary.results[0].items:
        for file in item.files:
            data = (path / "x" / file.path).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file.size, file.sha256)
            assert item.status not in READ or data.endswith(f"{int(item.id[-2:])}\n".encode())
    assert Record.open(path / "x").hosts.start[0].name == "localhost"
    return summary


def check_completed(path: Path) -> None:
    """Check that resuming reads only the missing items, and completes the bundle."""
    before = {item.id: item for item in check_valid(path).results[0].items if item.status in READ}
    collect_bundle(path)
    node = check_valid(path).results[0]
    assert (node.status, len(node.items)) == ("complete", len(ITEMS)), node.reason
    assert all(item == before.get(item.id, item) for item in node.items)
    assert not list((path / "x").rglob(".*.part"))
    assert not list((path / "x").rglob("state.jsonl"))


def descendants(pid: int) -> list[int]:
    """The descendants of a process, breadth first."""
    found = [pid]
    for one in found:
        try:
            for task in Path(f"/proc/{one}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile; its children have ended too, or have another parent now
    return found[1:]


def test_resume_a_node_lost_after_its_last_item(tmp_path: Path) -> None:
    """No item is missing, but the node is partial: resuming completes it."""
    collect_bundle(tmp_path)
    path = tmp_path / "x" / "summary.json"
    document = json.loads(path.read_bytes())
    document["results"][0] |= {"status": "partial", "reason": "the agent is gone"}
    path.write_text(json.dumps(document))
    check_completed(tmp_path)


def test_state_on_a_disk_that_becomes_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short write is continued, one that fails is an error, and a cut or damaged line affects only itself."""
    directory, real = create_bundle(tmp_path), os.write
    node = directory.nodes["localhost"]
    names = [item.id for item in ITEMS]
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[:7]))
        directory.keep(node, item=ItemResult(id=names[0], status="complete"))
    room = [20]

    def full(fd: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: room.pop()])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(RecordError, match="No space left"):
            directory.keep(node, item=ItemResult(id=names[1], status="complete"))
    directory.keep(node, item=ItemResult(id=names[2], status="complete"))
    with (tmp_path / "x" / node.relative / "state.jsonl").open("ab") as file:
        file.write(b'{"item": {"id": "\xff"}}\n')
    directory.keep(node, item=ItemResult(id=names[3], status="complete"))
    found = BundleDirectory.open(tmp_path / "x").nodes["localhost"].items
    assert list(found) == [names[0], names[2], names[3]]


def test_rules_read_facts_of_a_killed_run(tmp_path: Path) -> None:
    """Analysis takes over what a killed run left, the facts of its nodes as well, and resuming is still possible."""
    directory = create_bundle(tmp_path)
    node = directory.nodes["localhost"]
    facts = {"block": [Block("sda", "disk", counts_io=False)]}
    directory.keep(node, host=HostResult(name="localhost", status="complete", facts=facts))
    found = {one.id: one.outcome for one in analyse(tmp_path / "x").rules}
    assert found["disk-not-counted"] == "warn"
    assert Record.open(tmp_path / "x").hosts.start[0].rows(Block) == facts["block"]
    check_completed(tmp_path)


@pytest.mark.parametrize("moment", range(MOMENTS))
def test_collector_killed(tmp_path: Path, moment: int) -> None:
    """After SIGKILL to the collector, the bundle can be read and resumed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment)
    while not list(tmp_path.glob("x/*_metadata.json")):
        assert run.poll() is None
        time.sleep(0.005)
    time.sleep(random.Random(moment).uniform(0, 1.0))
    run.kill()
    run.wait()
    check_completed(tmp_path)


@pytest.mark.parametrize("victim", ["agent", "node"])
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_agent_or_node_killed(tmp_path: Path, victim: str, moment: int) -> None:
    """After SIGKILL to the agent, or to all processes of the node, received data is kept."""
    pause, killed = random.Random(moment).uniform(0.0, 0.8), list[int]()

    def started() -> list[int]:
        return [pid for pid in descendants(os.getpid()) if pid not in others and is_alive(pid)]

    def kill() -> None:
        while not (started() or ended.is_set()):
            time.sleep(0.005)
        time.sleep(pause)
        killed.extend(started()[: 1 if victim == "agent" else None])
        send_signal(killed)

    while not killed:  # the agent may have ended before
        path = tmp_path / str(pause)
        path.mkdir()
        others, ended = descendants(os.getpid()), threading.Event()
        killer = threading.Thread(target=kill)
        killer.start()
        summary = collect_bundle(path)
        ended.set()
        killer.join()
        pause /= 2
    node = summary.results[0]
    assert node.status == "complete" or node.reason
    assert {item.id for item in node.items} in ({item.id for item in ITEMS}, set())
    check_completed(path)


def test_interrupted_cluster_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary reports the cluster items as not read, not as absent."""

    async def hang(*_arguments: object, **_options: object) -> None:
        await asyncio.sleep(60)

    async def main() -> BundleSummary:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, stop.set)
        reach = Reach(lambda _: Local())
        return await collect(create_bundle(tmp_path), ITEMS, [], reach, cluster=ClusterOptions(), stop=stop)

    monkeypatch.setattr("rollbook.bundle.collect.read_cluster", hang)
    found = [(item.id, item.status, item.reason) for item in asyncio.run(main()).cluster]
    assert found == [("kubernetes", "not-read", "interrupted"), ("slurm", "not-read", "interrupted")]


def test_an_interrupted_report_does_not_pass(tmp_path: Path) -> None:
    """Analysing takes over what a killed run read, and does not let rules pass on a node that is not finished."""
    names = ["n1", "n2"]
    memory, log = Item(id="gpu-memory", title="", paths=("/x",)), Item(id="kernel-log", title="", paths=("/y",))
    request, hosts = Request(nodes=names, items=[memory, log]), parse_hosts(names)
    directory = BundleDirectory.create_at(tmp_path / "x", request, hosts, dt.datetime.now(dt.UTC))
    read = ItemResult(id="gpu-memory", status="complete", files=[])
    directory.keep(directory.nodes["n2"], item=read)
    directory.keep(directory.nodes["n2"], item=ItemResult(id="kernel-log", status="absent"))
    directory.end(directory.nodes["n2"], NodeResult(node="n2", status="complete", success=True))
    text = "kernel: harmless\n"
    (directory.node_path(directory.nodes["n1"]) / "log").write_text(text)
    digest = hashlib.sha256(text.encode()).hexdigest()
    file = File(path="nodes/n1/log", source="journalctl -k", size=len(text), sha256=digest)
    directory.keep(directory.nodes["n1"], item=ItemResult(id="kernel-log", status="complete", files=[file]))
    outcomes = {rule.id: rule for rule in analyse(directory.path).rules}
    assert outcomes["gpu-repair-pending"].outcome == "could-not-tell"
    assert outcomes["gpu-repair-pending"].note == "not finished: interrupted on n1"
    assert [one.message for one in outcomes["report-incomplete"].findings] == ["not finished: interrupted (n1)"]
    summary = Bundle(directory.path).summary
    assert [(node.status, len(node.items)) for node in summary.results] == [("not-tried", 1), ("complete", 2)]
    assert "not all from 1 node: n1" in (directory.path / "index.html").read_text().lower()
    assert BundleDirectory.open(directory.path).missing_items(directory.nodes["n1"]) == ["gpu-memory"]


def test_resume_keeps_cluster_data_that_cannot_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the login of kubectl has expired at the resume, what it had given stays, and so does the cluster's type."""

    def item(name: str, status: ItemStatus, *files: str) -> ItemResult:
        listed = [File(path=f"cluster/{name}/{file}", source=file, size=0, sha256="") for file in files]
        return ItemResult(id=name, status=status, files=listed)

    def run(*items: ItemResult) -> BundleSummary:
        async def give(*_arguments: object, **_options: object) -> tuple[list[ItemResult], None]:
            return list(items), None

        monkeypatch.setattr("rollbook.bundle.collect.read_cluster", give)
        path = tmp_path / "x"
        directory = BundleDirectory.open(path) if path.exists() else create_bundle(tmp_path)
        return asyncio.run(collect(directory, [], [], Reach(lambda _: Local()), cluster=ClusterOptions()))

    nodes = item("kubernetes-nodes", "complete", "nodes.json")
    statistics = item("slurm-statistics", "complete", "sdiag.txt")
    first = run(nodes, item("slurm-nodes", "timed-out", "sinfo.txt"), item("slurm-jobs", "failed"), statistics)
    assert first.cluster_type == "kubernetes"
    again = item("slurm-nodes", "failed", "nodes.txt")
    second = run(item("kubernetes", "failed"), again, item("slurm-jobs", "complete", "squeue.txt"))
    assert [(one.id, one.status, [file.source for file in one.files]) for one in second.cluster] == [
        ("kubernetes-nodes", "complete", ["nodes.json"]),
        ("slurm-nodes", "failed", ["nodes.txt", "sinfo.txt"]),
        ("slurm-jobs", "complete", ["squeue.txt"]),
        ("slurm-statistics", "complete", ["sdiag.txt"]),
    ]
    assert second.cluster_type == "kubernetes"
    third = run(item("slurm-nodes", "failed"))
    assert third.cluster == second.cluster
