"""exec, bundle, run and record through Session Manager and Kubernetes: every node named, nothing left behind."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import rollbook
from rollbook.api.options import TransportOptions
from rollbook.bundle import kubernetes
from rollbook.cli import cli
from rollbook.testing.lab.processes import living
from tests.support.commands import ROLLBOOK
from tests.support.fake_aws import Node, fake_aws
from tests.support.fake_kube import fake_kube, needs_kubectl
from tests.support.kube_record import write_kubeconfig
from tests.support.records import is_whole
from tests.support.waits import until, until_sampled


@dataclasses.dataclass
class Cluster:
    """Two nodes that can be reached and one that cannot.

    `left` are sessions, pods and files that runs have left; `running` are agents.
    """

    options: TransportOptions
    arguments: list[str]
    up: list[str]
    down: str
    reason: str
    left: Callable[[], object]
    running: Callable[[], object]

    def invoke(self, command: str, *more: str) -> Result:
        """Run a command of the command line on all three nodes."""
        argv = [command, *self.arguments, "-w", ",".join([*self.up, self.down]), *more]
        return CliRunner().invoke(cli, argv, catch_exceptions=False)

    def check_nothing_left(self) -> None:
        """No session, no pod, no file, and no agent."""
        assert not self.left()
        until(lambda: not self.running())


@pytest.fixture(params=["ssm", pytest.param("kube", marks=needs_kubectl)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """The nodes through each transport. Another cluster is the current one of kubectl."""
    config = write_kubeconfig(tmp_path / "other", "http://127.0.0.1:9")
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setattr(kubernetes, "KINDS", kubernetes.KINDS[:1])
    if request.param == "ssm":
        home = tmp_path / "home"
        home.mkdir()
        around = {"HOME": str(home), "TMPDIR": str(home)}
        names = [f"i-0000000000000001{letter}" for letter in "abc"]
        nodes = [Node(name, environment=around) for name in names[:2]] + [Node(names[2], status="Pending")]
        with fake_aws(nodes) as service:
            yield Cluster(
                {"via": "ssm", "cluster": "research", "endpoint_url": service.endpoint, "start_rate": 50.0},
                ["--via", "ssm", "--cluster", "research", "--endpoint-url", service.endpoint, "--start-rate", "50"],
                names[:2],
                names[2],
                "the node is Pending",
                lambda: [*service.sessions, *home.iterdir()],
                lambda: [one for one in living() if one.has_environment(f"TMPDIR={home}")],
            )
    else:
        names = [f"hyperpod-i-0a1b2c3d4e5f6071{number}" for number in (0, 1, 3)]
        with fake_kube(tmp_path) as (server, path):
            yield Cluster(
                {"via": "kube", "kubeconfig": str(path)},
                ["--via", "kube", "--kubeconfig", str(path)],
                names[:2],
                names[2],
                "the node is not ready",
                lambda: server.pods,
                lambda: server.executing,
            )


def test_exec(cluster: Cluster) -> None:
    """Output is folded, the node that cannot be reached is named, and the exit code says that one is missing."""
    done = cluster.invoke("exec", "--", "echo out; echo err >&2")
    assert done.exit_code == 3, done.output
    assert done.stdout.splitlines()[1:] == ["out"]
    assert f"unreachable  {cluster.down}: {cluster.reason}" in done.stderr
    assert "2 of 3 hosts complete, 1 unreachable" in done.stderr
    assert cluster.invoke("exec", "--", "exit 7").exit_code == 3
    cluster.check_nothing_left()


def test_bundle(cluster: Cluster, tmp_path: Path) -> None:
    """Items of both nodes, the third with its reason, and the Kubernetes cluster of the transport, not another one."""
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
    """Start facts, samples and end facts of both nodes around a command, whose exit code is kept."""
    names = [*cluster.up, cluster.down]
    argv = ["sh", "-c", "sleep 1; exit 7"]
    done = rollbook.run(argv, names, results_dir=tmp_path, interval=0.2, report=False, **cluster.options)
    assert (done.exit_code, done.coverage.exit_code) == (7, 3)
    hosts = done.record.hosts
    for found in (hosts.start, hosts.end):
        assert [host.status for host in found] == ["complete", "complete", "unreachable"]
        assert found[2].reason.startswith(cluster.reason)
    assert all(is_whole(host) for host in hosts.series[:2])
    assert all(host.samples >= 3 for host in hosts.series[:2])
    cluster.check_nothing_left()


def test_a_killed_recorder(cluster: Cluster, tmp_path: Path) -> None:
    """After SIGKILL and the next run, no session, no pod, no agent and no file is left; the record can be read."""
    argv = [*ROLLBOOK, "record", *cluster.arguments, "-w", ",".join(cluster.up)]
    argv += ["--interval", "0.2", "--no-report", "--results-dir", str(tmp_path / "results")]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as recorder:
        until_sampled(tmp_path / "results", hosts=2, samples=3)
        recorder.kill()
    assert cluster.left()
    assert rollbook.execute("true", cluster.up[0], **cluster.options).exit_code == 0
    cluster.check_nothing_left()
    [path] = (tmp_path / "results").glob("record/*")
    series = rollbook.recover(path).hosts.series
    assert all(host.samples >= 3 and host.status != "complete" for host in series)
