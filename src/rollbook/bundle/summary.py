"""What `summary.json` of an issue report contains: every requested node, and every item with its status.

A bundle is also a record, with the files of a snapshot, so every command that reads a snapshot reads a bundle:

    BUNDLE/
      summary.json              this document
      hosts.json, metadata.json the snapshot
      nodes/NODE/ITEM/FILE      what an item read on a node
      nodes/NODE/redactions.json
      cluster/ITEM/FILE         what was read once for the whole cluster
      findings.json, index.html, manifest.json

FILE is made from what was read, a path or a command, by the collector: letters, digits, `.`, `-` and `_` stay. What
was read itself is in `File.source`: a path, or a command line as `shlex.join` writes it. A pattern with wildcards below
/proc or /sys is one file, whose source is the pattern: each path that it matched is a line `==> PATH <==`, then the
text. Outside /proc and /sys each path is a file of its own.
"""

from __future__ import annotations

import datetime as dt
from typing import Literal

import msgspec

from rollbook.records.document import current_version

__all__ = [
    "Archive",
    "BundleSummary",
    "Delivery",
    "File",
    "ItemResult",
    "ItemStatus",
    "NodeResult",
    "NodeStatus",
    "Window",
]

# complete: read whole; truncated: a part of it, within the limits; absent: this node does not have it;
# not-read: the run, or the budget of the node, ended before it.
ItemStatus = Literal["complete", "truncated", "absent", "denied", "timed-out", "failed", "not-read"]
Delivery = Literal["presigned", "session", "node"]
NodeStatus = Literal["complete", "partial", "failed", "timed-out", "refused", "unreachable", "not-tried"]


class Window(msgspec.Struct, frozen=True, omit_defaults=True):
    """The time that logs were limited to; null is open."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None


class File(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of an item, as it is in the bundle."""

    path: str
    """Relative to the bundle."""
    source: str
    """What was read: a path on the node, or a command."""
    size: int
    sha256: str
    truncated: str = ""
    """What is missing (`the first 1.12 GiB of 1.14 GiB`); empty if nothing is."""
    exit_status: int | None = None
    redactions: int = 0


class ItemResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item on one node. `reason` is why it is not complete."""

    id: str
    status: ItemStatus
    reason: str = ""
    seconds: float = 0.0
    files: list[File] = []


class Archive(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How what a node read was delivered; `reason` is why it was `session` instead of what was requested.

    `presigned` and `node`: the node uploaded its archive, with presigned requests or with its own permissions.
    `session`: it came through the session, and the collector uploads it.
    `url`, `size`, `sha256` and `parts` are those of an object that the node uploaded.
    """

    delivery: Delivery
    reason: str = ""
    url: str = ""
    size: int = 0
    sha256: str = ""
    parts: int = 0


class NodeResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One requested node. The capitalised keys are those of the HyperPod collector's results."""

    node: str
    status: NodeStatus
    reason: str = ""
    started: dt.datetime | None = None
    ended: dt.datetime | None = None
    items: list[ItemResult] = []
    instance_id: str = msgspec.field(default="", name="InstanceId")
    node_group: str = msgspec.field(default="", name="NodeGroup")
    role: str = ""
    """The Slurm role of a HyperPod node: `Controller`, `Login` or `Compute`."""
    success: bool = msgspec.field(default_factory=bool, name="Success")
    """Always written: a default that is made by a function is not left out."""
    output: str = msgspec.field(default="", name="Output")
    """With `--delivery node`: the last lines that the script printed."""
    error: str = msgspec.field(default="", name="Error")
    elapsed: float = msgspec.field(default=0.0, name="ElapsedTime")
    archive: Archive | None = None
    """With `--s3-path`: how the node's archive was delivered."""


class BundleSummary(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.bundle/1"):
    """`summary.json`. The first eight keys are those of the HyperPod collector."""

    cluster_name: str = ""
    cluster_id: str = ""
    report_id: str
    timestamp: dt.datetime
    total_nodes: int
    successful: int
    failed: int
    results: list[NodeResult]
    cluster_type: str = ""
    cluster: list[ItemResult] = []
    """What was read once, from the collector's machine: Kubernetes, the Slurm controller, the cloud's service."""
    window: Window = Window()
    interrupted: bool = False
    rollbook: str = msgspec.field(default_factory=current_version)
