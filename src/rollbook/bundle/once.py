"""What is read once for the whole cluster, while the nodes are read: Kubernetes, Slurm's controller, HyperPod."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from rollbook.bundle import hyperpod, kubernetes, slurm
from rollbook.bundle.cluster import ClusterPart, Output
from rollbook.bundle.hyperpod import HyperPod, Service
from rollbook.bundle.kubernetes import VERIFY_SECONDS, Kubectl
from rollbook.bundle.receive import Redaction, Redactions
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
        """The clusters of the nodes, as the options of their transport name them; `context` is another one of kubectl.

        A context that is named is read without a look at its nodes. `seconds` is the time for all queries of kubectl.
        """
        given = transport.given
        kubectl = Kubectl(context or given.get("kube_context", ""), given.get("kubeconfig", ""))
        return cls(enabled, kubectl, HyperPod.of(given), bool(kubectl.context) or transport.via == "kube", seconds)


class ClusterRead(NamedTuple):
    """The items, and what the service of HyperPod has of the nodes if they are in such a cluster."""

    items: list[ItemResult]
    service: Service | None


async def read_cluster(
    bundle: Path, nodes: Sequence[str], options: ClusterOptions, *, salt: bytes, window: Window
) -> ClusterRead:
    """The items of the cluster, written below `cluster/`; what cannot be read is an item with the reason.

    The current context of kubectl may belong to another cluster: it is read only if one of the nodes is in it, a node
    of HyperPod by its name in EKS.
    """
    service, kubectl, names = None, options.kubectl, list(nodes)
    if options.hyperpod is not None:
        service = await hyperpod.collect(bundle, options.hyperpod, nodes, salt=salt, window=window)
    if service is not None and service.cluster is not None:
        kubectl = dataclasses.replace(kubectl, cluster=service.cluster.eks_cluster)
        names += [f"hyperpod-{node.instance_id}" for node in service.cluster.nodes]
    items, part = await slurm.collect(bundle, salt=salt, window=window)
    redactions = list(part.redactions)
    tried = Output(b"") if options.has_nodes else await _has_nodes(bundle, names, kubectl, salt)
    if tried.reason:
        items.append(kubernetes.unusable(kubectl, tried))
    else:
        more, part = await kubernetes.collect(
            bundle, kubectl, salt=salt, window=window, seconds=options.kubectl_seconds
        )
        items += more
        redactions += part.redactions
    if service is not None:
        items += service.items
        redactions += service.redactions
    if redactions:
        listed = Redactions(redactions=[Redaction(*entry) for entry in redactions])
        write_file(bundle / "cluster" / "redactions.json", encode(listed))
    return ClusterRead(items, service)


async def _has_nodes(bundle: Path, nodes: Sequence[str], kubectl: Kubectl, salt: bytes) -> Output:
    """Whether the current context is that of the nodes; if not, or if that is unknown, the reason is not empty."""
    part = ClusterPart(bundle, salt, VERIFY_SECONDS)
    found = await part.output(kubectl.current("get", "nodes", "-o", "name"), VERIFY_SECONDS)
    if "localhost:8080" in found.reason:  # what kubectl tries without any configuration
        return Output(b"", "absent", "kubectl has no current context; name one with --kubectl-context")
    known = {_short(name.removeprefix("node/")) for name in found.data.decode("utf-8", "replace").split()}
    if not found.reason and known.isdisjoint(_short(node) for node in nodes):
        reason = "none of the nodes is in the cluster of kubectl's current context; name it with --kubectl-context"
        return Output(b"", "absent", reason)
    return found


def _short(name: str) -> str:
    return name.partition(".")[0].lower()
