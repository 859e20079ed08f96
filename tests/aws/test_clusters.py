"""Discovery of HyperPod nodes through botocore's own clients."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.aws.api import Account
from rollbook.aws.clusters import Cluster, discover, with_hostnames
from rollbook.errors import AwsError, NoHostReached, UsageError
from tests.support.fake_aws import FakeAws, Faults, Node, fake_aws

NODES = [
    Node("i-0000000000000001a", "controller", dns="ip-10-1-0-7.ec2.internal"),
    *(Node(f"i-00000000000000b{number:02}", "worker") for number in range(20)),
    Node("i-0000000000000001c", "worker", status="Pending"),
]


def discover_cluster(service: FakeAws, cluster: str = "research", **options: list[str]) -> Cluster:
    """Discover a cluster of the fake service."""
    return asyncio.run(discover(Account(endpoint_url=service.endpoint), cluster, **options))


def test_all_nodes() -> None:
    """All pages are read; a node that is not up is listed with its status and not reachable."""
    with fake_aws(NODES, Faults(page=7)) as service:
        for name in ("research", service.arn):
            cluster = discover_cluster(service, name)
            assert [node.instance_id for node in cluster.nodes] == [node.instance for node in NODES]
            assert (cluster.orchestrator, cluster.id) == ("eks", "abcdef123456")
        assert [node.status for node in cluster.nodes if not node.is_reachable] == ["Pending"]
        assert cluster.nodes[0].target == "sagemaker-cluster:abcdef123456_controller-i-0000000000000001a"
        assert service.described == 0


def test_selected_nodes() -> None:
    """Nodes can be selected by group; only nodes without a host name are described to find all names."""
    with fake_aws(NODES) as service:
        nodes = discover_cluster(service).nodes
        assert len(discover_cluster(service, groups=["WORKER"]).nodes) == 21
        assert service.described == 0
        assert nodes[0].names == ("i-0000000000000001a", "hyperpod-i-0000000000000001a", "ip-10-1-0-7")
        account = Account(endpoint_url=service.endpoint)
        assert len(asyncio.run(with_hostnames(account, "research", nodes))) == len(NODES)
        assert service.described == 21
        with pytest.raises(UsageError, match="available: controller, worker"):
            discover_cluster(service, groups=["login"])


def test_orchestrator_types() -> None:
    """A cluster without an orchestrator has an unknown type."""
    with fake_aws(NODES) as service:
        service.orchestrator = {"Slurm": {"SlurmConfigStrategy": "Managed"}}
        assert discover_cluster(service).orchestrator == "slurm"
        service.orchestrator = None
        assert discover_cluster(service).orchestrator == "unknown"


def test_slurm_roles_restricted_groups_and_nodes_without_an_instance() -> None:
    """Every node is listed with its role; restricted groups have none, and new nodes only have a logical id."""
    nodes = [
        Node("i-0000000000000001a", "head", role="Controller"),
        Node("i-0000000000000001b", "gpu", is_restricted=True),
        Node("", "compute", role="Compute", logical="node-3", status="Pending"),
    ]
    with fake_aws(nodes) as service:
        service.orchestrator = None
        cluster = discover_cluster(service)
        assert cluster.orchestrator == "slurm"
        assert [(node.name, node.role, node.is_reachable) for node in cluster.nodes] == [
            ("i-0000000000000001a", "Controller", True),
            ("i-0000000000000001b", "", True),
            ("node-3", "Compute", False),
        ]


@pytest.mark.parametrize(
    ("faults", "cluster", "error", "text", "code"),
    [
        (Faults(page=3, repeated_token=True), "research", AwsError, "repeats a page token", 2),
        (Faults(), "other", AwsError, "check the name and --region", 2),
        (Faults(errors={"ListClusterNodes": ("AccessDeniedException", "no")}), "research", AwsError, "not allowed", 2),
        (Faults(errors={"DescribeCluster": ("ExpiredTokenException", "x")}), "research", AwsError, "log in again", 2),
    ],
)
def test_failures(faults: Faults, cluster: str, error: type[UsageError], text: str, code: int) -> None:
    """An API failure is an error with its cause, never an empty list."""
    with fake_aws(NODES, faults) as service:
        with pytest.raises(error, match=text) as raised:
            discover_cluster(service, cluster)
        assert raised.value.exit_code == code


def test_no_endpoint() -> None:
    """If the service cannot be reached, no host is reached."""
    with fake_aws(NODES), pytest.raises(NoHostReached) as raised:
        asyncio.run(discover(Account("us-west-2", endpoint_url="http://127.0.0.1:1"), "research"))
    assert raised.value.exit_code == 4
