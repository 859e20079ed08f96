"""HyperPod clusters: their nodes, the names of each, and which can be reached."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import msgspec

from rollbook.aws.api import Account
from rollbook.errors import AwsError, UsageError

__all__ = ["Cluster", "ClusterNode", "Orchestrator", "discover", "list_events", "list_nodes", "with_hostnames"]

Orchestrator = Literal["eks", "slurm", "unknown"]
CLUSTER_ID = re.compile(r":cluster/([a-z0-9]{12})$")
PAGE = 100
AT_ONCE = 16
REACHABLE = ("Running", "DeepHealthCheckInProgress")


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node as the service lists it. `instance_id` is empty while the node has no instance yet."""

    cluster_id: str
    group: str
    instance_id: str = ""
    logical_id: str = ""
    status: str = ""
    message: str = ""
    hostname: str = ""
    role: str = ""

    @property
    def name(self) -> str:
        """What the node is called in results: its instance id, or its logical id before it has one."""
        return self.instance_id or self.logical_id

    @property
    def names(self) -> tuple[str, ...]:
        """All names a user may give: instance id, logical id, EKS node name, Slurm node name."""
        eks = f"hyperpod-{self.instance_id}" if self.instance_id else ""
        slurm = self.hostname.partition(".")[0]
        return tuple(name for name in (self.instance_id, self.logical_id, eks, slurm) if name)

    @property
    def target(self) -> str:
        """The target of a Session Manager session."""
        return f"sagemaker-cluster:{self.cluster_id}_{self.group}-{self.instance_id}"

    @property
    def is_reachable(self) -> bool:
        """Whether a session is worth a try: it has an instance, which is neither starting nor ending."""
        return bool(self.instance_id) and self.status in REACHABLE


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster and its nodes, in the order of the service."""

    name: str
    id: str
    orchestrator: Orchestrator
    eks_cluster: str = ""
    nodes: tuple[ClusterNode, ...] = ()


async def discover(account: Account, cluster: str, *, groups: Sequence[str] = ()) -> Cluster:
    """The cluster of that name or ARN, with all its nodes or those of these instance groups.

    Groups are compared without regard to case; one that does not exist raises `UsageError`. API errors raise `AwsError`
    or `NoHostReached`.
    """
    described = await account.call("sagemaker", "describe_cluster", ClusterName=cluster)
    arn = str(described["ClusterArn"])
    found = CLUSTER_ID.search(arn)
    if found is None:
        raise AwsError(f"the ARN of cluster {cluster} has an unexpected form: {arn}")
    roles = _roles(described)
    every = [_node(summary, found[1], roles) async for summary in list_nodes(account, cluster)]
    orchestrator = described.get("Orchestrator") or {}
    eks = str((orchestrator.get("Eks") or {}).get("ClusterArn", ""))
    kind: Orchestrator = "eks" if eks else "slurm" if "Slurm" in orchestrator or roles else "unknown"
    return Cluster(
        name=str(described["ClusterName"]),
        id=found[1],
        orchestrator=kind,
        eks_cluster=eks,
        nodes=tuple(_in_groups(every, groups, cluster)),
    )


def _roles(described: dict[str, Any]) -> dict[str, str]:
    """The Slurm role of each instance group that has one."""
    groups = [*described.get("InstanceGroups", ()), *described.get("RestrictedInstanceGroups", ())]
    found = {str(group.get("InstanceGroupName", "")): group.get("SlurmConfig") or {} for group in groups}
    return {name: str(config["NodeType"]) for name, config in found.items() if config.get("NodeType")}


def list_nodes(account: Account, cluster: str) -> AsyncIterator[dict[str, Any]]:
    """The nodes as the service lists them, those without an instance included; errors as for `discover`."""
    return _pages(
        account, "list_cluster_nodes", "ClusterNodeSummaries", ClusterName=cluster, IncludeNodeLogicalIds=True
    )


def list_events(
    account: Account, cluster: str, since: dt.datetime | None, until: dt.datetime | None
) -> AsyncIterator[dict[str, Any]]:
    """The events of a cluster in a time window, newest first; errors as for `discover`."""
    window = {
        name: value for name, value in (("EventTimeAfter", since), ("EventTimeBefore", until)) if value is not None
    }
    return _pages(
        account,
        "list_cluster_events",
        "Events",
        ClusterName=cluster,
        SortBy="EventTime",
        SortOrder="Descending",
        **window,
    )


async def _pages(account: Account, operation: str, key: str, **parameters: Any) -> AsyncIterator[dict[str, Any]]:
    """The entries of all pages; a page token that is repeated raises `AwsError`."""
    seen: set[str] = set()
    while True:
        page = await account.call("sagemaker", operation, MaxResults=PAGE, **parameters)
        for entry in page.get(key, ()):
            yield entry
        token = page.get("NextToken")
        if not token:
            return
        if token in seen:
            raise AwsError(f"{operation}: endless pagination: the service repeats a page token")
        seen.add(token)
        parameters["NextToken"] = token


def _node(summary: dict[str, Any], cluster_id: str, roles: dict[str, str]) -> ClusterNode:
    status, group = summary.get("InstanceStatus") or {}, str(summary.get("InstanceGroupName", ""))
    return ClusterNode(
        cluster_id=cluster_id,
        group=group,
        instance_id=str(summary.get("InstanceId") or ""),
        logical_id=str(summary.get("NodeLogicalId") or ""),
        status=str(status.get("Status") or ""),
        message=str(status.get("Message") or ""),
        hostname=str(summary.get("PrivateDnsHostname") or ""),
        role=roles.get(group, ""),
    )


def _in_groups(nodes: Sequence[ClusterNode], groups: Sequence[str], cluster: str) -> list[ClusterNode]:
    if not groups:
        return list(nodes)
    existing = {node.group.lower(): node.group for node in nodes}
    for group in groups:
        if group.lower() not in existing:
            known = ", ".join(sorted(existing.values())) or "none"
            raise UsageError(f"cluster {cluster} has no instance group {group!r} with nodes; available: {known}")
    wanted = {group.lower() for group in groups}
    return [node for node in nodes if node.group.lower() in wanted]


async def with_hostnames(account: Account, cluster: str, nodes: Sequence[ClusterNode]) -> list[ClusterNode]:
    """The nodes with their host names, which the list may lack; such nodes are described one by one, in parallel."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def complete(node: ClusterNode) -> ClusterNode:
        if node.hostname or not node.instance_id:
            return node
        async with limit:
            answer = await account.call(
                "sagemaker", "describe_cluster_node", ClusterName=cluster, NodeId=node.instance_id
            )
        return msgspec.structs.replace(node, hostname=str(answer["NodeDetails"].get("PrivateDnsHostname") or ""))

    return list(await asyncio.gather(*map(complete, nodes)))
