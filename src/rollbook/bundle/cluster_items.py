"""What is read once for the whole cluster, while the nodes are read: Kubernetes, Slurm's controller, HyperPod."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from rollbook.aws.clusters import Cluster
from rollbook.bundle import hyperpod, kubernetes, slurm
from rollbook.bundle.cluster import ClusterPart, Output
from rollbook.bundle.hyperpod import HyperPod
from rollbook.bundle.kubernetes import VERIFY_SECONDS, Kubectl
from rollbook.bundle.receive import Redaction, Redactions
from rollbook.bundle.summary import ItemResult, Window
from rollbook.files import write_file
from rollbook.records.document import encode, read
from rollbook.transports.routing import Options

__all__ = ["DEFECTS", "PARTS", "ClusterOptions", "merge_items", "read_cluster"]

PARTS = (kubernetes.ITEM, slurm.ITEM)
"""The items that stand for a part of the cluster of which nothing was read."""
DEFECTS = ("timed-out", "failed", "not-read")
"""Statuses of items that a later run reads again."""


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
    items += service
    if part.redactions:
        _write_redactions(bundle / "cluster" / "redactions.json", part.redactions, items)
    return items, cluster


def merge_items(known: Sequence[ItemResult], found: Sequence[ItemResult]) -> list[ItemResult]:
    """Items of an earlier run and those that were read again; one that could not be keeps what it had.

    The item that stands for a part is left out if there are others of that part.
    """
    items = {item.id: item for item in known}
    for item in found:
        before = items.get(item.id)
        items[item.id] = item if before is None else _better(before, item)
    return [
        item
        for item in items.values()
        if item.id not in PARTS or not any(other.startswith(f"{item.id}-") for other in items)
    ]


def _better(known: ItemResult, found: ItemResult) -> ItemResult:
    if found.status not in DEFECTS:
        return found
    if not found.files:
        return known if known.files or known.status not in DEFECTS else found
    written = {file.path for file in found.files}  # over those of the earlier run
    kept = [file for file in known.files if file.path not in written]
    return msgspec.structs.replace(found, files=[*found.files, *kept])


def _write_redactions(path: Path, redactions: Sequence[Redaction], items: Sequence[ItemResult]) -> None:
    """Write what was replaced, with what an earlier run replaced in files that were not written again."""
    written = {file.path for item in items for file in item.files}
    known = read(path, Redactions).redactions if path.exists() else []
    kept = [one for one in known if one.path not in written]
    write_file(path, encode(Redactions(redactions=[*kept, *redactions])))


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
