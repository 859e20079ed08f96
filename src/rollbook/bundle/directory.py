"""The directory of an issue report: valid at every moment, so that an interrupted run can be read and resumed.

`summary.json`, `hosts.json` and the metadata exist from the start. While a node is read, every finished item is a line
in its `state.jsonl`; when the run ends, the summary has everything, and these files are removed.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from rollbook import times
from rollbook.aws.clusters import Cluster
from rollbook.bundle.mark_key import kept_key, new_key
from rollbook.bundle.obfuscate import MARKER
from rollbook.bundle.reading import ARCHIVES, archive_suffix
from rollbook.bundle.receive import Redaction, Redactions, file_name, take_name
from rollbook.bundle.request import Request
from rollbook.bundle.summary import BundleSummary, File, ItemResult, NodeResult
from rollbook.errors import RecordError, UsageError
from rollbook.files import PRIVATE, remove_leftovers, write_file
from rollbook.hosts import Host
from rollbook.records.document import encode, read
from rollbook.records.hosts import GAVE_DATA, HostResult, HostStatus
from rollbook.records.layout import RecordDirectory, size_and_hash
from rollbook.records.locate import metadata_files
from rollbook.records.reading import UNDECODABLE, read_regular, require_directory, require_own
from rollbook.records.record import RecordHosts

__all__ = ["READ", "REDACTIONS", "SUMMARY", "BundleDirectory", "NodeState", "adopt_states", "read_summary"]

KIND = "bundle"
SUMMARY, REQUEST, STATE, REDACTIONS = "summary.json", "request.json", "state.jsonl", "redactions.json"
READ = ("complete", "truncated", "absent", "denied")
"""Statuses of items that need not be read again."""
UNREADABLE = "interrupted"
OTHER_ARCHIVES = (".zip", ".tar", ".tar.bz2", ".tar.xz", ".7z")
OTHER_MARKS = "resumed without the key of the first marks: marks of before and after cannot be compared"


class _Line(msgspec.Struct, omit_defaults=True):
    """A line of `state.jsonl`: the facts of the node, an item with what was replaced, or the node's result."""

    host: HostResult | None = None
    item: ItemResult | None = None
    redactions: list[Redaction] = []
    node: NodeResult | None = None


class _Member(NamedTuple):
    """What the service of HyperPod has of a node."""

    instance_id: str = ""
    group: str = ""
    role: str = ""


class NodeState:
    """What is known of one node: its facts, items and result. `relative` is its directory in the bundle."""

    def __init__(self, host: Host, relative: str) -> None:
        self.host, self.relative = host, relative
        self.facts: HostResult | None = None
        self.items: dict[str, ItemResult] = {}
        self.result = NodeResult(node=host.name, status="not-tried", reason=UNREADABLE)
        self.redactions: dict[str, list[Redaction]] = {}
        """By item."""
        self.unlisted = 0


class BundleDirectory:
    """A bundle that is written. `nodes` has the state of every requested node."""

    def __init__(self, record: RecordDirectory, request: Request, hosts: Sequence[Host], began: dt.datetime) -> None:
        self.record, self.path, self.request, self.began = record, record.path, request, began
        taken: set[str] = set()
        self.nodes = {host.name: NodeState(host, f"nodes/{take_name(file_name(host.name), taken)}") for host in hosts}
        self.note = ""
        """The note on marks in `redactions.json` of nodes."""
        self.cluster: list[ItemResult] = []
        self.cluster_type = self.cluster_name = self.cluster_id = ""
        self._members: dict[str, _Member] = {}

    @classmethod
    def create(cls, output: Path, request: Request, hosts: Sequence[Host], now: dt.datetime) -> BundleDirectory:
        """A new directory: below a results directory, or next to the archive that is made of it in the end.

        Raises `UsageError` if the archive exists or is of another kind than Rollbook writes.
        """
        if suffix := archive_suffix(output):
            path = output.with_name(output.name.removesuffix(suffix))
            if output.exists() or path.exists():
                raise UsageError(f"{output if output.exists() else path} exists; it is not replaced")
            return cls.create_at(path, request, hosts, now)
        if output.name.endswith(OTHER_ARCHIVES) and not output.is_dir():
            raise UsageError(f"cannot write {output}: the name of an archive ends in {', '.join(ARCHIVES)}")
        return cls._create(RecordDirectory.create(output, KIND, now), request, hosts, now)

    @classmethod
    def create_at(cls, path: Path, request: Request, hosts: Sequence[Host], now: dt.datetime) -> BundleDirectory:
        """A new directory at exactly this path; raises `UsageError` if it cannot be created."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir(mode=0o700)
        except OSError as error:
            raise UsageError(f"cannot create {path}: {error.strerror}") from error
        return cls._create(RecordDirectory(path, KIND, times.stamp(now)), request, hosts, now)

    @classmethod
    def _create(
        cls, record: RecordDirectory, request: Request, hosts: Sequence[Host], now: dt.datetime
    ) -> BundleDirectory:
        directory = cls(record, request, hosts, now)
        write_file(directory.path / REQUEST, encode(request.masked()))
        directory.write_summary(interrupted=True)
        directory.write_record()
        return directory

    @classmethod
    def open(cls, path: Path) -> BundleDirectory:
        """An interrupted or incomplete bundle, to be continued; raises `RecordError`.

        That of another user is refused: its request names nodes and commands, which would run with our rights.
        """
        require_own(path, "only its owner continues it")
        if (path / MARKER).exists():
            raise UsageError(f"{path} is obfuscated and cannot be resumed: the names of its nodes are replaced")
        remove_leftovers(path)
        return cls.load(path)

    @classmethod
    def load(cls, path: Path) -> BundleDirectory:
        """What is known of a bundle; changes nothing, because it may be in progress."""
        request, summary = read(path / REQUEST, Request), read(path / SUMMARY, BundleSummary)
        found = metadata_files(path)
        if len(found) != 1:
            raise RecordError(f"{path} is not an issue report: it has no metadata")
        record = RecordDirectory(path, KIND, found[0].name.removeprefix(f"{KIND}_").removesuffix("_metadata.json"))
        hosts = msgspec.convert([{"name": one.node} for one in summary.results], list[Host])
        directory = cls(record, request, hosts, summary.timestamp)
        directory.cluster, directory.cluster_type = summary.cluster, summary.cluster_type
        directory.cluster_name, directory.cluster_id = summary.cluster_name, summary.cluster_id
        directory._members = {
            one.node: _Member(one.instance_id, one.node_group, one.role) for one in summary.results if one.node_group
        }
        facts = {host.name: host for host in read(path / "hosts.json", RecordHosts).start}
        for result in summary.results:
            node = directory.nodes[result.node]
            node.result = result
            node.items = {item.id: item for item in result.items}
            if result.node in facts and facts[result.node].gave_data:
                node.facts = facts[result.node]
            directory._read_redactions(node)
            directory._read_state(node)
        return directory

    def node_path(self, node: NodeState) -> Path:
        """The directory of a node, created; raises `RecordError` if something else has its name."""
        path = self.path / node.relative
        for one in (path.parent, path):
            require_directory(one)
            with contextlib.suppress(FileExistsError):
                one.mkdir(mode=0o700)
        return path

    def missing_items(self, node: NodeState) -> list[str]:
        """The items of a node that must still be read, or whose files are missing or changed."""
        return [
            item.id
            for item in self.request.items
            if (known := node.items.get(item.id)) is None
            or known.status not in READ
            or not all(self._is_intact(file) for file in known.files)
        ]

    def mark_key(self) -> str:
        """The key of the marks of this bundle, the same as in the runs before if it was kept."""
        if key := kept_key(self.request.id):
            return key
        if any(file.redactions for node in self.nodes.values() for item in node.items.values() for file in item.files):
            self.note = OTHER_MARKS
        return new_key(self.request.id)

    def keep(
        self,
        node: NodeState,
        *,
        host: HostResult | None = None,
        item: ItemResult | None = None,
        redactions: Sequence[Redaction] = (),
    ) -> None:
        """Remember facts or an item of a node, so that they survive if this process is killed."""
        line = _Line(host=host, item=item, redactions=list(redactions))
        self._take_over(node, line)
        self._append(node, line)

    def end(self, node: NodeState, result: NodeResult) -> None:
        """Remember the result of a node, and write its redactions."""
        node.result = result
        self._append(node, _Line(node=result))
        if node.redactions:
            listed = [entry for entries in node.redactions.values() for entry in entries]
            found = Redactions(redactions=listed, unlisted=node.unlisted, note=self.note)
            write_file(self.node_path(node) / REDACTIONS, encode(found))

    def identify(self, cluster: Cluster) -> None:
        """Remember the HyperPod cluster, and what it has of every node."""
        self.cluster_name, self.cluster_id = cluster.name, cluster.id
        if cluster.orchestrator != "unknown":
            self.cluster_type = cluster.orchestrator
        by_name = {
            name: _Member(node.instance_id, node.group, node.role) for node in cluster.nodes for name in node.names
        }
        self._members = {name: by_name[name] for name in self.nodes if name in by_name}

    def member(self, node: str) -> tuple[str, str]:
        """The instance id and the group of a node; empty if it is not in a HyperPod cluster."""
        return self._members.get(node, _Member())[:2]

    def summary(self, *, interrupted: bool) -> BundleSummary:
        """Everything that is known now; items in the order in which they were requested."""
        results = []
        for node in self.nodes.values():
            order = [item.id for item in self.request.items]
            items = [node.items[name] for name in order if name in node.items]
            result = msgspec.structs.replace(node.result, items=items)
            if (member := self._members.get(node.host.name)) is not None:
                result.instance_id, result.node_group, result.role = member
            results.append(result)
        successful = sum(result.success for result in results)
        return BundleSummary(
            cluster_name=self.cluster_name,
            cluster_id=self.cluster_id,
            report_id=f"{KIND}_{self.record.stamp}",
            timestamp=self.began,
            total_nodes=len(results),
            successful=successful,
            failed=len(results) - successful,
            results=results,
            cluster_type=self.cluster_type,
            cluster=self.cluster,
            window=self.request.window,
            interrupted=interrupted,
        )

    def write_summary(self, *, interrupted: bool) -> BundleSummary:
        """Write `summary.json`."""
        found = self.summary(interrupted=interrupted)
        write_file(self.path / SUMMARY, encode(found))
        return found

    def write_record(self) -> None:
        """Write the files of a snapshot, and remove what only an interrupted run needs."""
        self.write_hosts()
        for node in self.nodes.values():
            (self.path / node.relative / STATE).unlink(missing_ok=True)

    def write_hosts(self) -> None:
        """Write the files of a snapshot: what is known of every node now."""
        self.record.write_snapshot([self._host_result(node) for node in self.nodes.values()], self.began)

    def _host_result(self, node: NodeState) -> HostResult:
        if node.facts is not None:
            return node.facts
        status: HostStatus = "failed"
        if node.result.status not in {"not-tried", *GAVE_DATA}:
            status = msgspec.convert(node.result.status, HostStatus)
        return HostResult(name=node.host.name, status=status, reason=node.result.reason)

    def _append(self, node: NodeState, line: _Line) -> None:
        try:
            path = self.node_path(node) / STATE
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path, flags, PRIVATE)
            try:
                data = b"\n" + msgspec.json.encode(line) + b"\n"  # the line before may be cut
                while data:  # on a disk that becomes full, a write may be short
                    data = data[os.write(descriptor, data) :]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise RecordError(f"cannot write {node.relative}: {error.strerror}") from error

    def _read_state(self, node: NodeState) -> None:
        """Take over what a killed run left; lines that were cut are ignored."""
        path = self.path / node.relative / STATE
        if not path.exists():
            return
        for text in read_regular(path).split(b"\n"):
            try:
                line = msgspec.json.decode(text, type=_Line)
            except UNDECODABLE:
                continue
            if line.host is not None:
                line.host.convert_facts()
            self._take_over(node, line)

    def _take_over(self, node: NodeState, line: _Line) -> None:
        if line.host is not None:
            node.facts = line.host
        if line.item is not None:
            node.items[line.item.id] = line.item
            node.redactions[line.item.id] = line.redactions
        if line.node is not None:
            node.result = line.node

    def _read_redactions(self, node: NodeState) -> None:
        """Take over what earlier runs replaced in the items that they read."""
        path = self.path / node.relative / REDACTIONS
        if not path.exists():
            return
        found = read(path, Redactions)
        node.unlisted, self.note = found.unlisted, self.note or found.note
        for entry in found.redactions:
            item = entry.path.removeprefix(f"{node.relative}/").partition("/")[0]
            node.redactions.setdefault(item, []).append(entry)

    def _is_intact(self, file: File) -> bool:
        path = self.path / file.path
        try:
            return not path.is_symlink() and size_and_hash(path) == (file.size, file.sha256)
        except (OSError, RecordError):
            return False


def read_summary(path: Path) -> BundleSummary:
    """The summary of a bundle, with what a killed run left in the files of its nodes; raises `RecordError`."""
    summary = read(path / SUMMARY, BundleSummary)
    if _has_states(path, summary):
        return BundleDirectory.load(path).summary(interrupted=True)
    return summary


def adopt_states(path: Path) -> None:
    """Write what a killed run left of its nodes into the summary and hosts of this bundle; raises `RecordError`.

    A run that is in progress is not disturbed: it writes its own files again.
    """
    if _has_states(path, read(path / SUMMARY, BundleSummary)):
        directory = BundleDirectory.load(path)
        directory.write_summary(interrupted=True)
        directory.write_hosts()


def _has_states(path: Path, summary: BundleSummary) -> bool:
    return summary.interrupted and any(path.glob(f"nodes/*/{STATE}"))
