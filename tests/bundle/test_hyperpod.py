"""Data of the HyperPod service in an issue report: a failing call affects only its item."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rollbook.bundle import kubernetes
from rollbook.cli import cli
from tests.support.fake_aws import FakeAws, Faults, Node, fake_aws
from tests.support.fake_kube import needs_kubectl
from tests.support.kube_record import CLUSTER, kube_record, write_kubeconfig

NODES = [
    Node("i-0000000000000001a", dns="ip-10-1-0-7.ec2.internal"),
    Node("i-0000000000000001b", group="controller", role="Controller"),
    Node("i-0000000000000001c", status="Pending"),
]
NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
TOKEN = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh"


def events(count: int) -> list[dict[str, Any]]:
    """Events of one node, an hour apart, up to noon; the last one mentions a secret."""
    return [
        {
            "EventId": f"00000000-0000-0000-0000-{number:012}",
            "InstanceGroupName": "worker",
            "InstanceId": NODES[0].instance,
            "EventTime": NOON.timestamp() - 3600 * number,
            "Description": f"event {number}" + (f" with HF_TOKEN={TOKEN}" if number == 0 else ""),
        }
        for number in range(count)
    ]


def bundle(service: FakeAws, tmp_path: Path, *more: str, code: int = 0) -> dict[str, Any]:
    """Collect a report of the fake cluster, which ends with this exit code; return its summary."""
    argv = ["bundle", "--via", "ssm", "--cluster", "research", "--endpoint-url", service.endpoint, "--start-rate", "50"]
    done = CliRunner().invoke(cli, [*argv, "--item", "os", "-o", str(tmp_path), "--json", *more])
    assert done.exit_code == code, (done.output, done.exception)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def content(tmp_path: Path, name: str) -> Any:
    """Read the only file of an item."""
    [path] = tmp_path.glob(f"bundle/*/cluster/{name}/*.json")
    return json.loads(path.read_bytes())


@pytest.mark.parametrize("page", [100, 2])
def test_cluster_nodes_and_events(tmp_path: Path, page: int) -> None:
    """Descriptions, nodes and events are files; the summary has the cluster, and each node's instance and group."""
    with fake_aws(NODES, Faults(page=page)) as service:
        service.events = events(5)
        window = ["--since", "2026-11-16T09:00Z", "--until", "2026-11-16T12:00Z"]
        summary = bundle(service, tmp_path, *window, code=3)  # a node is pending
    assert (summary["cluster_name"], summary["cluster_id"], summary["cluster_type"]) == (
        "research",
        "abcdef123456",
        "eks",
    )
    assert [(node["InstanceId"], node["NodeGroup"], node.get("role", "")) for node in summary["results"]] == [
        (node.instance, node.group, node.role) for node in NODES
    ]
    items = {item["id"]: item["status"] for item in summary["cluster"] if item["id"].startswith("hyperpod")}
    assert items == dict.fromkeys(
        ("hyperpod-cluster", "hyperpod-nodes", "hyperpod-node-details", "hyperpod-events"), "complete"
    )
    assert content(tmp_path, "hyperpod-cluster")["ClusterStatus"] == "InService"
    assert [node["InstanceId"] for node in content(tmp_path, "hyperpod-nodes")] == [node.instance for node in NODES]
    assert [node["InstanceId"] for node in content(tmp_path, "hyperpod-node-details")] == [
        node.instance for node in NODES
    ]
    found = content(tmp_path, "hyperpod-events")
    assert [event["Description"].split()[1] for event in found] == ["0", "1", "2", "3"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_one_node_by_its_slurm_name(tmp_path: Path) -> None:
    """Only this node is described, and the summary has its instance id."""
    with fake_aws(NODES) as service:
        summary = bundle(service, tmp_path, "-w", "ip-10-1-0-7")
    [node] = summary["results"]
    assert (node["InstanceId"], node["NodeGroup"]) == (NODES[0].instance, "worker")
    assert [one["InstanceId"] for one in content(tmp_path, "hyperpod-node-details")] == [NODES[0].instance]


@pytest.mark.parametrize(
    ("operation", "error", "item", "status"),
    [
        ("ListClusterEvents", ("AccessDeniedException", "no"), "hyperpod-events", "denied"),
        ("ListClusterEvents", ("ValidationException", "not for this cluster"), "hyperpod-events", "failed"),
        ("DescribeClusterNode", ("InternalFailure", "broken"), "hyperpod-node-details", "failed"),
    ],
)
def test_failing_calls(tmp_path: Path, operation: str, error: tuple[str, str], item: str, status: str) -> None:
    """The item of the failing call has the reason; other items and the nodes are complete."""
    with fake_aws(NODES[:2], Faults(errors={operation: error})) as service:
        summary = bundle(service, tmp_path)
    items = {one["id"]: one for one in summary["cluster"] if one["id"].startswith("hyperpod")}
    assert items.pop(item)["status"] == status
    assert error[1] in next(one["reason"] for one in summary["cluster"] if one["id"] == item)
    assert {one["status"] for one in items.values()} == {"complete"}
    assert {node["status"] for node in summary["results"]} == {"complete"}


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("PATH", "/nowhere", "kubectl is not in PATH"),
        pytest.param(
            "KUBECONFIG",
            "/nowhere",
            "kubectl has no current context; name one with --kube-context",
            marks=needs_kubectl,
        ),
    ],
)
def test_no_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str) -> None:
    """An EKS cluster has Kubernetes: if kubectl cannot read it, that is a finding, and nodes are still collected."""
    monkeypatch.setenv(name, value)
    with fake_aws([Node(NODES[0].instance, environment={"PATH": "/usr/bin:/bin"})]) as service:
        summary = bundle(service, tmp_path)
    items = {item["id"]: item for item in summary["cluster"]}
    assert (items["kubernetes"]["status"], items["kubernetes"]["reason"]) == ("failed", reason)
    assert summary["results"][0]["status"] == "complete"
    [found] = tmp_path.glob("bundle/*/findings.json")
    assert f"kubernetes failed: {reason}" in found.read_text()


@needs_kubectl
@pytest.mark.parametrize("eks", [CLUSTER, "arn:aws:eks:us-west-2:123456789012:cluster/another"])
def test_nodes_of_an_eks_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eks: str) -> None:
    """Kubernetes is read if kubectl's current context belongs to the EKS cluster; node names differ there."""
    with fake_aws([Node("i-0a1b2c3d4e5f60710")]) as service, kube_record() as (_, address):
        service.orchestrator = {"Eks": {"ClusterArn": eks}}
        monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "kubeconfig", address)))
        monkeypatch.setattr(kubernetes, "KINDS", kubernetes.KINDS[:1])
        summary = bundle(service, tmp_path)
    items = {item["id"]: item for item in summary["cluster"]}
    if eks == CLUSTER:
        assert items["kubernetes-nodes"]["status"] == "complete"
    else:
        assert items["kubernetes"]["status"] == "failed"
        assert items["kubernetes"]["reason"].startswith(f"context lab is for cluster {CLUSTER}, not for {eks}")


def test_equal_reasons_are_one_line(tmp_path: Path) -> None:
    """Reasons that differ only in the node's name are printed as one line."""
    with fake_aws(NODES) as service:
        argv = ["bundle", "--via", "ssm", "--cluster", "research", "--endpoint-url", service.endpoint]
        argv += ["-w", "ip-10-9-9-[8-9]", "--item", "os", "--no-once", "-o", str(tmp_path)]
        done = CliRunner().invoke(cli, argv)
    assert done.exit_code == 4
    reason = "cluster research has no node called HOST"
    assert f"unreachable  ip-10-9-9-[8-9]: {reason}\n" in done.stderr
    assert f"nothing was collected: {reason} (ip-10-9-9-[8-9])" in " ".join(done.stdout.split())


def test_obfuscation(tmp_path: Path) -> None:
    """Names of all nodes of the cluster are replaced, even of nodes that were not requested."""
    with fake_aws(NODES) as service:
        bundle(service, tmp_path, "-w", "ip-10-1-0-7", "--obfuscate", str(tmp_path / "map.json"))
    files = [path for path in tmp_path.glob("bundle/**/*") if path.is_file()]
    assert len(files) > 5
    for name in (*(node.instance for node in NODES), "ip-10-1-0-7"):
        assert not [path for path in files if name.encode() in path.read_bytes() or name in str(path)], name
