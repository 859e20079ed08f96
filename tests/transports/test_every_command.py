"""Every command through Session Manager and Kubernetes: every node is named, and nothing is left behind."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import rollbook
from rollbook.api.options import TransportOptions
from rollbook.bundle import kubernetes
from rollbook.bundle.directory import read_summary
from rollbook.cli import cli
from rollbook.testing.lab.processes import living
from tests.support.commands import ROLLBOOK
from tests.support.fake_aws import Node, fake_aws
from tests.support.fake_kube import fake_kube, needs_kubectl
from tests.support.kube_record import write_kubeconfig
from tests.support.records import is_whole
from tests.support.waits import SECONDS, until, until_sampled


@dataclasses.dataclass
class Cluster:
    """Two nodes that can be reached, one that cannot, and one whose agent never answers.

    `marks` is a directory in which the silent node creates a file. `left` returns sessions, pods and files that runs
    have left behind; `running` returns agents.
    """

    options: TransportOptions
    arguments: list[str]
    up: list[str]
    down: str
    silent: str
    marks: Path
    reason: str
    left: Callable[[], object]
    running: Callable[[], object]

    def invoke(self, command: str, *more: str) -> Result:
        """Run a command on the reachable nodes and the unreachable one."""
        argv = [command, *self.arguments, "-w", ",".join([*self.up, self.down]), *more]
        return CliRunner().invoke(cli, argv, catch_exceptions=False)

    def check_nothing_left(self) -> None:
        """Check that no session, pod, file or agent remains."""
        until(lambda: not self.running())
        assert not self.left()


@pytest.fixture(params=["ssm", pytest.param("kube", marks=needs_kubectl)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The nodes through each transport. The current context of kubectl is another cluster."""
    config = write_kubeconfig(tmp_path / "other", "http://127.0.0.1:9")
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setattr(kubernetes, "KINDS", kubernetes.KINDS[:1])
    marks = tmp_path / "marks"
    marks.mkdir()
    silence = ["sh", "-c", f"touch {marks}/snapshot; cat > /dev/null", "sh"]
    if request.param == "ssm":
        home = tmp_path / "home"
        home.mkdir()
        environment = {"HOME": str(home), "TMPDIR": str(home)}
        names = [f"i-0000000000000001{letter}" for letter in "abcd"]
        nodes = [Node(name, environment=environment) for name in names]
        nodes[2].status, nodes[3].prefix = "Pending", tuple(silence)
        with fake_aws(nodes) as service:
            yield Cluster(
                {"via": "ssm", "cluster": "research", "endpoint_url": service.endpoint, "start_rate": 50.0},
                ["--via", "ssm", "--cluster", "research", "--endpoint-url", service.endpoint, "--start-rate", "50"],
                names[:2],
                names[2],
                names[3],
                marks,
                "the node is Pending",
                lambda: [*service.sessions, *home.iterdir()],
                lambda: [one for one in living() if one.has_environment(f"TMPDIR={home}")],
            )
    else:
        names = [f"hyperpod-i-0a1b2c3d4e5f6071{number}" for number in (0, 1, 3, 4)]
        with fake_kube(tmp_path, prefixes={names[3]: silence}) as (server, path):
            yield Cluster(
                {"via": "kube", "kubeconfig": str(path)},
                ["--via", "kube", "--kubeconfig", str(path)],
                names[:2],
                names[2],
                names[3],
                marks,
                "the node is not ready",
                lambda: server.pods,
                lambda: server.executing,
            )


def test_exec(cluster: Cluster) -> None:
    """Output is folded, the unreachable node is named, and the exit status reports that a node is missing."""
    done = cluster.invoke("exec", "--", "echo out; echo err >&2")
    assert done.exit_code == 3, done.output
    assert done.stdout.splitlines()[1:] == ["out"]
    assert f"unreachable  {cluster.down}: {cluster.reason}" in done.stderr
    assert "2 of 3 hosts complete, 1 unreachable" in done.stderr
    assert cluster.invoke("exec", "--", "exit 7").exit_code == 3
    cluster.check_nothing_left()


def test_bundle(cluster: Cluster, tmp_path: Path) -> None:
    """Items of both nodes, the reason of the third, and the Kubernetes cluster of the transport, not another one."""
    more = ["--item", "os", "--command", "seq 3000", "-o", str(tmp_path / "results"), "--json"]
    done = cluster.invoke("bundle", *more)
    assert done.exit_code == 3, done.output
    summary = json.loads(done.stdout)
    assert [(node["node"], node["status"]) for node in summary["results"]] == [
        *((name, "complete") for name in cluster.up),
        (cluster.down, "unreachable"),
    ]
    assert summary["results"][2]["reason"].startswith(cluster.reason)
    files = sorted(tmp_path.glob("results/bundle/*/nodes/*/command-1/*"))
    assert [file.read_text() for file in files] == 2 * ["".join(f"{number}\n" for number in range(1, 3001))]
    items = {item["id"]: item for item in summary["cluster"]}
    if cluster.options["via"] == "kube":
        assert items["kubernetes-nodes"]["files"]
        [listed] = tmp_path.glob("results/bundle/*/cluster/kubernetes-nodes/nodes.json")
        assert {node["metadata"]["name"] for node in json.loads(listed.read_bytes())["items"]} > set(cluster.up)
    else:
        assert items["hyperpod-nodes"]["status"] == "complete"
    cluster.check_nothing_left()


def test_run(cluster: Cluster, tmp_path: Path) -> None:
    """Start facts, samples and end facts of both nodes around a command, whose exit status is returned."""
    names = [*cluster.up, cluster.down]
    argv = ["sh", "-c", f"while [ ! -e {tmp_path}/sampled ]; do sleep 0.1; done; exit 7"]

    def end_the_command() -> None:
        try:
            until_sampled(tmp_path, hosts=2, samples=3)
        finally:
            (tmp_path / "sampled").touch()

    waiting = threading.Thread(target=end_the_command)
    waiting.start()
    done = rollbook.run(argv, names, results_dir=tmp_path, interval=0.2, report=False, **cluster.options)
    waiting.join()
    assert (done.exit_code, done.coverage.exit_code) == (7, 3)
    hosts = done.record.hosts
    for found in (hosts.start, hosts.end):
        assert [host.status for host in found] == ["complete", "complete", "unreachable"]
        assert found[2].reason.startswith(cluster.reason)
    assert all(is_whole(host) for host in hosts.series[:2])
    assert all(host.samples >= 3 for host in hosts.series[:2])
    cluster.check_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "SIGKILL"])
def test_interrupted_or_killed(cluster: Cluster, tmp_path: Path, number: signal.Signals) -> None:
    """After Ctrl-C, or after SIGKILL and the next run, no command leaves anything behind."""
    first, second = cluster.up

    def wait_command(name: str) -> str:
        return f"touch {cluster.marks}/{name}; while [ -e {cluster.marks}/{name} ]; do sleep 0.2; done"

    commands = {
        "snapshot": ["-w", cluster.silent],
        "exec": ["-w", first, "--", wait_command("exec")],
        "bundle": ["-w", second, "--item", "os", "--command", wait_command("bundle"), "-o", str(tmp_path)],
        "record": ["-w", first, "--interval", "0.2", "--no-report", "--results-dir", str(tmp_path / "recorded")],
        "run": ["-w", second, "--no-report", "--results-dir", str(tmp_path), "--", "sh", "-c", wait_command("run")],
    }
    started = {
        name: subprocess.Popen(
            [*ROLLBOOK, name, *cluster.arguments, *more],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for name, more in commands.items()
    }
    try:
        until(lambda: {path.name for path in cluster.marks.iterdir()} == commands.keys() - {"record"})
        until_sampled(tmp_path / "recorded", hosts=1, samples=1)
        states = tmp_path / "bundle"
        until(lambda: any(b'"item":{' in path.read_bytes() for path in states.glob("*/nodes/*/state.jsonl")))
        for process in started.values():
            if number == signal.SIGINT:
                os.killpg(process.pid, number)  # as a terminal does
            else:
                process.kill()
        codes = {name: process.wait(SECONDS) for name, process in started.items()}
        if number == signal.SIGINT:
            assert codes.pop("record") in (0, 3)  # 3 if the machine was too busy for some samples
            assert set(codes.values()) == {130}
        else:
            assert cluster.left()
            assert rollbook.execute("true", first, **cluster.options).exit_code == 0
        cluster.check_nothing_left()
    finally:
        shutil.rmtree(cluster.marks)
        for process in started.values():
            process.kill()
            process.wait()
    [path] = tmp_path.glob("recorded/record/*")
    series = (
        rollbook.recover(path).hosts.series if number == signal.SIGKILL else rollbook.open_record(path).hosts.series
    )
    assert [host.samples > 0 for host in series] == [True]
    [path] = tmp_path.glob("bundle/*")
    assert [item.status for item in read_summary(path).results[0].items][:1] == ["complete"]
