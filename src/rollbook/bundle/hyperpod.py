"""What the service of SageMaker HyperPod has of a cluster: its description, its nodes and its events, read once."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

from rollbook.aws.api import Account
from rollbook.aws.clusters import Cluster, ClusterNode, discover, list_events, list_nodes
from rollbook.bundle.cluster import DIRECTORY, ClusterPart
from rollbook.bundle.summary import ItemResult, ItemStatus, Window
from rollbook.errors import AwsDenied, AwsError, NoHostReached, TransportError
from rollbook.records.document import encode

__all__ = ["HyperPod", "collect"]

SECONDS = 180.0  # for all calls together
MAX_EVENTS = 5000
AT_ONCE = 8
ERRORS = (AwsError, NoHostReached, TransportError)


@dataclasses.dataclass(frozen=True)
class HyperPod:
    """A cluster, by name or ARN."""

    account: Account
    cluster: str

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> HyperPod | None:
        """The cluster that the options of the transport name, if any."""
        if not given.get("cluster"):
            return None
        return cls(Account(given.get("region"), given.get("profile"), given.get("endpoint_url")), given["cluster"])


class _Answer(NamedTuple):
    """What a file gets; `problem` describes the missing part."""

    content: Any
    status: ItemStatus = "complete"
    problem: str = ""


async def collect(
    part: ClusterPart, hyperpod: HyperPod, nodes: Sequence[str], window: Window
) -> tuple[list[ItemResult], Cluster | None]:
    """The items, and the cluster if it could be described. A call that fails affects only its item."""
    account, name = hyperpod.account, hyperpod.cluster

    async def describe() -> _Answer:
        answer = await account.call("sagemaker", "describe_cluster", ClusterName=name)
        answer.pop("ResponseMetadata", None)
        return _Answer(answer)

    async def every_node() -> _Answer:
        return _Answer([node async for node in list_nodes(account, name)])

    async def events() -> _Answer:
        found: list[dict[str, Any]] = []
        async for event in list_events(account, name, window.since, window.until):
            if len(found) == MAX_EVENTS:
                return _Answer(found, "truncated", f"the newest {MAX_EVENTS} events")
            found.append(event)
        return _Answer(found)

    cluster: Cluster | None = None
    problem: Exception = AwsError("the cluster was not described")
    try:
        cluster = await discover(account, name)
    except ERRORS as error:
        problem = error

    async def details() -> _Answer:
        if cluster is None:
            raise problem
        return await _details(hyperpod, cluster.nodes, nodes)

    items = await asyncio.gather(
        _item(part, "hyperpod-cluster", "DescribeCluster", describe()),
        _item(part, "hyperpod-nodes", "ListClusterNodes", every_node()),
        _item(part, "hyperpod-node-details", "DescribeClusterNode", details()),
        _item(part, "hyperpod-events", "ListClusterEvents", events()),
    )
    return list(items), cluster


async def _details(hyperpod: HyperPod, nodes: Sequence[ClusterNode], names: Sequence[str]) -> _Answer:
    """The nodes that were requested; all of them if one was requested by a name that the list does not have."""
    wanted = [node for node in nodes if set(names) & set(node.names)]
    if len(wanted) < len(names):
        wanted = list(nodes)
    limit, problems = asyncio.Semaphore(AT_ONCE), list[str]()

    async def details(node: ClusterNode) -> Any:
        async with limit:
            try:
                answer = await hyperpod.account.call(
                    "sagemaker", "describe_cluster_node", ClusterName=hyperpod.cluster, NodeId=node.instance_id
                )
            except ERRORS as error:
                problems.append(f"{node.instance_id}: {error}")
                return {"InstanceId": node.instance_id, "Error": str(error)}
            return answer.get("NodeDetails")

    found = await asyncio.gather(*(details(node) for node in wanted if node.instance_id))
    if problems:
        return _Answer(found, "failed", f"{len(problems)} of {len(found)} nodes, the first: {problems[0]}")
    return _Answer(found)


async def _item(part: ClusterPart, name: str, call: str, reading: Awaitable[_Answer]) -> ItemResult:
    began, files = time.monotonic(), []
    status: ItemStatus
    try:
        async with asyncio.timeout(SECONDS):
            content, status, reason = await reading
    except AwsDenied as error:
        status, reason = "denied", part.last_line(str(error))
    except ERRORS as error:
        status, reason = "failed", part.last_line(str(error))
    except TimeoutError:
        status, reason = "timed-out", f"no answer within {SECONDS:.0f} s"
    else:
        path = f"{DIRECTORY}/{name}/{name.removeprefix('hyperpod-')}.json"
        missing = f"all but {reason}" if status == "truncated" else ""
        files = [part.write(path, part.redact(encode(content), path), f"sagemaker {call}", truncated=missing)]
    return ItemResult(id=name, status=status, reason=reason, seconds=round(time.monotonic() - began, 3), files=files)
