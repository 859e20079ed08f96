"""What is read once for the whole cluster, while the nodes are read: Kubernetes, and Slurm's controller."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rollbook.bundle import kubernetes, slurm
from rollbook.bundle.cluster import ClusterPart
from rollbook.bundle.kubernetes import Kubectl
from rollbook.bundle.receive import Redaction, Redactions
from rollbook.bundle.summary import ItemResult, Window
from rollbook.files import write_file
from rollbook.records.document import encode

__all__ = ["ClusterOptions", "read_cluster"]

VERIFY_SECONDS = 20.0


@dataclasses.dataclass(frozen=True)
class ClusterOptions:
    """Whether Kubernetes and Slurm are read. A context that is named is read whatever its nodes are called."""

    enabled: bool = True
    kubectl: Kubectl = dataclasses.field(default_factory=Kubectl)


async def read_cluster(
    bundle: Path, nodes: Sequence[str], options: ClusterOptions, *, salt: bytes, window: Window
) -> list[ItemResult]:
    """The items of the cluster, written below `cluster/`; nothing is raised for what cannot be read.

    The current context of kubectl may belong to another cluster: it is read only if one of the nodes is in it.
    """
    items, part = await slurm.collect(bundle, salt=salt, window=window)
    redactions = list(part.redactions)
    problem = "" if options.kubectl.context else await _foreign(bundle, nodes, options.kubectl, salt)
    if problem:
        items.append(ItemResult(id=kubernetes.ITEM, status="absent", reason=problem))
    else:
        more, part = await kubernetes.collect(bundle, options.kubectl, salt=salt, window=window)
        items += more
        redactions += part.redactions
    if redactions:
        listed = Redactions(redactions=[Redaction(*entry) for entry in redactions])
        write_file(bundle / "cluster" / "redactions.json", encode(listed))
    return items


async def _foreign(bundle: Path, nodes: Sequence[str], kubectl: Kubectl, salt: bytes) -> str:
    """Why the current context is not read; empty if it is that of the nodes."""
    part = ClusterPart(bundle, salt, VERIFY_SECONDS)
    config = [f"--kubeconfig={kubectl.kubeconfig}"] if kubectl.kubeconfig else []
    found, reason, _ = await part.output([kubectl.program, *config, "get", "nodes", "-o", "name"], VERIFY_SECONDS)
    if reason:
        return reason
    known = {_short(name.removeprefix("node/")) for name in found.decode("utf-8", "replace").split()}
    if known.isdisjoint(_short(node) for node in nodes):
        return "none of the nodes is in the cluster of kubectl's current context; name it with --kubectl-context"
    return ""


def _short(name: str) -> str:
    return name.partition(".")[0].lower()
