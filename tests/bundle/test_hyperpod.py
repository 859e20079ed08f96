"""What the service of HyperPod has of a cluster, in an issue report: every failing call affects only its item."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rollbook.cli import cli
from tests.support.fake_aws import FakeAws, Faults, Node, fake_aws

NODES = [
    Node("i-0000000000000001a", dns="ip-10-1-0-7.ec2.internal"),
    Node("i-0000000000000001b", group="controller"),
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


def bundle(service: FakeAws, tmp_path: Path, *more: str) -> dict[str, Any]:
    """The summary of a report of this cluster."""
    argv = ["bundle", "--via", "ssm", "--cluster", "research", "--endpoint-url", service.endpoint, "--start-rate", "50"]
    done = CliRunner().invoke(cli, [*argv, "--item", "os", "-o", str(tmp_path), "--json", *more])
    assert done.exit_code in {0, 3}, (done.output, done.exception)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def content(tmp_path: Path, name: str) -> Any:
    """The only file of an item."""
    [path] = tmp_path.glob(f"bundle/*/cluster/{name}/*.json")
    return json.loads(path.read_bytes())


@pytest.mark.parametrize("page", [100, 2])
def test_the_service_is_read(tmp_path: Path, page: int) -> None:
    """Descriptions, nodes and events are files; the summary has the cluster, and instance and group of each node."""
    with fake_aws(NODES, Faults(page=page)) as service:
        service.events = events(5)
        summary = bundle(service, tmp_path, "--since", "2026-11-16T09:00Z", "--until", "2026-11-16T12:00Z")
    assert (summary["cluster_name"], summary["cluster_id"], summary["cluster_type"]) == (
        "research",
        "abcdef123456",
        "eks",
    )
    assert [(node["InstanceId"], node["NodeGroup"]) for node in summary["results"]] == [
        (node.instance, node.group) for node in NODES
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
    """Only this node is described, and the summary has its instance."""
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
def test_a_call_that_fails(tmp_path: Path, operation: str, error: tuple[str, str], item: str, status: str) -> None:
    """Its item has the reason, the others are complete, and so are the nodes."""
    with fake_aws(NODES[:2], Faults(errors={operation: error})) as service:
        summary = bundle(service, tmp_path)
    items = {one["id"]: one for one in summary["cluster"] if one["id"].startswith("hyperpod")}
    assert items.pop(item)["status"] == status
    assert error[1] in next(one["reason"] for one in summary["cluster"] if one["id"] == item)
    assert {one["status"] for one in items.values()} == {"complete"}
    assert {node["status"] for node in summary["results"]} == {"complete"}


def test_obfuscated(tmp_path: Path) -> None:
    """Names of all nodes of the cluster are replaced, also of those that were not requested."""
    with fake_aws(NODES) as service:
        bundle(service, tmp_path, "-w", "ip-10-1-0-7", "--obfuscate", str(tmp_path / "map.json"))
    files = [path for path in tmp_path.glob("bundle/**/*") if path.is_file()]
    assert len(files) > 5
    for name in (*(node.instance for node in NODES), "ip-10-1-0-7"):
        assert not [path for path in files if name.encode() in path.read_bytes() or name in str(path)], name
