"""What is read once for the whole cluster, while the nodes are read: Kubernetes, Slurm's controller, HyperPod."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rollbook.aws.clusters import Cluster
from rollbook.bundle import hyperpod, kubernetes, slurm
from rollbook.bundle.cluster import ClusterPart, Output
from rollbook.bundle.hyperpod import HyperPod
from rollbook.bundle.kubernetes import VERIFY_SECONDS, Kubectl
from rollbook.bundle.receive import Redactions
from rollbook.bundle.summary import ItemResult, Window
from rollbook.files import write_file
from rollbook.records.document import encode
from rollbook.transports.routing import Options

__all__ = ["PARTS", "ClusterOptions", "read_cluster"]

PARTS = (kubernetes.ITEM, slurm.ITEM)
"""The items that stand for a part of the cluster of which nothing was read."""


@dataclasses.dataclass(frozen=True)
class ClusterOptions:
    """Whether all this is read. `has_nodes`: the nodes are in the cluster of kubectl, whatever they are called."""

    enabled: bool = True
    kubectl: Kubectl = dataclasses.field(default_factory=Kubectl)
    hyperpod: HyperPod | None = None
    has_nodes: bool = False
    kubectl_seconds: float = kubernetes.SECONDS

    @classmethod
    def of(
        cls, transport: Options, *, enabled: bool = True, context: str = "", seconds: float = kubernetes.SECONDS
    ) -> Self:
        """The clusters of the nodes, as the options of their transport name them.

        `context` is that of kubectl, with any transport. A context that is named is read without a look at its nodes.
        `seconds` is the time for all queries of kubectl.
        """
        given = transport.given
        kubectl = Kubectl(context or given.get("kube_context", ""), given.get("kubeconfig", ""))
        return cls(enabled, kubectl, HyperPod.of(given), bool(kubectl.context) or transport.via == "kube", seconds)


async def read_cluster(
    bundle: Path, nodes: Sequence[str], options: ClusterOptions, *, salt: bytes, window: Window
) -> tuple[list[ItemResult], Cluster | None]:
    """The items, written below `cluster/`, and the HyperPod cluster if the nodes are in one and it can be described.

    The current context of kubectl may belong to another cluster: it is read only if one of the nodes is in it, a node
    of HyperPod by its name in EKS.
    """
    part = ClusterPart(bundle, salt)
    kubectl, names = options.kubectl, list(nodes)
    service, cluster = list[ItemResult](), None
    if options.hyperpod is not None:
        service, cluster = await hyperpod.collect(part, options.hyperpod, nodes, window)
    if cluster is not None:
        kubectl = dataclasses.replace(kubectl, cluster=cluster.eks_cluster)
        names += [f"hyperpod-{node.instance_id}" for node in cluster.nodes]
    part.limit(slurm.SECONDS)
    items = await slurm.collect(part, window)
    part.limit(VERIFY_SECONDS)
    tried = Output(b"") if options.has_nodes else await _has_nodes(part, names, kubectl)
    part.limit(options.kubectl_seconds)
    if tried.reason:
        items.append(kubernetes.unusable(kubectl, tried))
    else:
        items += await kubernetes.collect(part, kubectl, window)
    if part.redactions:
        write_file(bundle / "cluster" / "redactions.json", encode(Redactions(redactions=part.redactions)))
    return [*items, *service], cluster


async def _has_nodes(part: ClusterPart, nodes: Sequence[str], kubectl: Kubectl) -> Output:
    """Whether the current context is that of the nodes; if not, or if that is unknown, the reason is not empty."""
    found = await part.output(kubectl.current("get", "nodes", "-o", "name"), VERIFY_SECONDS)
    if "localhost:8080" in found.reason:  # what kubectl tries without any configuration
        return Output(b"", "absent", "kubectl has no current context; name one with --kube-context")
    known = {_short(name.removeprefix("node/")) for name in found.data.decode("utf-8", "replace").split()}
    if not found.reason and known.isdisjoint(_short(node) for node in nodes):
        reason = "none of the nodes is in the cluster of kubectl's current context; name it with --kube-context"
        return Output(b"", "absent", reason)
    return found


def _short(name: str) -> str:
    return name.partition(".")[0].lower()
