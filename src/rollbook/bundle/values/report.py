"""The report itself: what it lacks, and warnings of the kernel that no rule knows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from rollbook.bundle.evidence import BundleData, node_finding
from rollbook.bundle.logs import evidence_text
from rollbook.bundle.rows import compiled, harmless, recoveries, rows
from rollbook.bundle.summary import ItemResult, NodeResult
from rollbook.clean import count_text
from rollbook.errors import RecordError
from rollbook.records.causes import group_by_cause
from rollbook.records.findings import EvidenceLine, Finding

__all__ = ["incomplete", "unknown_warnings"]

ITEM = "journal-warnings"
MAX_KINDS = 20
MAX_NAMED = 5
MAX_SHAPES = 100_000
LONGEST = 1024
FOLDED = re.compile(rb"0x[0-9a-fA-F]+|[0-9a-fA-F]{4,}(?:[:.-][0-9a-fA-F]+)*|\d+")
NOT_READ = ("denied", "timed-out", "failed", "not-read", "truncated")


def incomplete(run: BundleData) -> Iterator[Finding]:
    """Nodes without data, and items that were truncated or not read, the same cause together."""
    found: dict[str, list[tuple[str, str]]] = {}
    for node in run.bundle.summary.results:
        for what, reason in _missing(node):
            found.setdefault(what, []).append((node.node, reason))
    for item in run.bundle.summary.cluster:
        if item.status in NOT_READ:
            found.setdefault(f"{item.id} {_how(item.status)}", []).append(("", item.reason))
    for path, reason in run.unreadable.items():
        owner = path.split("/")[1] if path.startswith("nodes/") else ""
        found.setdefault(f"{path} cannot be read", []).append((owner, reason))
    for what, reasons in found.items():
        for reason, names in group_by_cause(reasons):
            yield node_finding(names, f"{what}: {reason}" if reason else what, count=len(names))


def _missing(node: NodeResult) -> Iterator[tuple[str, str]]:
    """What a node lacks, and why; items that were not read for the same reason together."""
    unread: dict[str, list[str]] = {}
    for item in node.items:
        if item.status == "not-read":
            unread.setdefault(item.reason, []).append(item.id)
        elif item.status in NOT_READ:
            yield f"{item.id} {_how(item.status)}", item.reason
    if sum(map(len, unread.values())) == len(node.items):
        yield "nothing was collected", node.reason or node.status
        return
    if node.status == "not-tried":  # the collector was killed while it read the node
        yield "not finished", node.reason
    for reason, items in unread.items():
        named = ", ".join(items[:MAX_NAMED]) + (", …" if len(items) > MAX_NAMED else "")
        yield f"{named} was not read" if len(items) == 1 else f"{len(items)} items were not read ({named})", reason


def _how(status: str) -> str:
    texts = {"timed-out": "timed out", "truncated": "was truncated", "denied": "was denied", "not-read": "was not read"}
    return texts.get(status, status)


class _Kinds:
    """The warnings of one node by kind: how often each was logged, and its first line."""

    def __init__(self) -> None:
        self.counts: Counter[bytes] = Counter()
        self.first: dict[bytes, tuple[str, int, bytes]] = {}

    def add(self, path: str, number: int, line: bytes) -> None:
        """Count a line of the kernel; numbers and addresses do not make a kind of their own."""
        _, tag, text = line[:LONGEST].partition(b" kernel: ")
        shape = FOLDED.sub(b"#", text)
        if tag and (shape in self.counts or len(self.counts) < MAX_SHAPES):
            self.counts[shape] += 1
            self.first.setdefault(shape, (path, number, line[:LONGEST]))


def unknown_warnings(run: BundleData) -> Iterator[Finding]:
    """Warnings of the kernel by kind, without those of most peers, one finding per node."""
    kinds = {node: _read(run, items[ITEM]) for node, items in run.bundle.nodes.items() if ITEM in items}
    nodes_with = Counter(shape for found in kinds.values() for shape in found.counts)
    for node, found in kinds.items():
        peers = sum(peer in kinds for peer in run.peers_of(node))
        unknown = [
            (found.counts[shape], *first)
            for shape, first in found.first.items()
            if _is_news(shape, first[2], nodes_with[shape] - 1, peers)
        ]
        if not unknown:
            continue
        top = sorted(unknown, key=lambda one: -one[0])[:MAX_KINDS]
        lines = [EvidenceLine(path, n, evidence_text(line.decode("utf-8", "replace"))) for _, path, n, line in top]
        first = top[0][3].partition(b" kernel: ")[2].decode("utf-8", "replace")
        many = f"{count_text(len(unknown), 'kind')} of unknown kernel warnings"
        times = f", {top[0][0]} times" if top[0][0] > 1 else ""
        message = f"{many}; most often: {evidence_text(first)[:120]}{times}"
        yield node_finding(node, message, lines=lines, count=sum(one[0] for one in unknown))


def _read(run: BundleData, item: ItemResult) -> _Kinds:
    found = _Kinds()
    for file in item.files:
        try:
            for chunk in run.bundle.chunks(file):
                for step, line in enumerate(chunk.data.split(b"\n")):
                    found.add(file.path, chunk.line + step, line)
        except RecordError as error:
            run.unreadable[file.path] = str(error)
    return found


def _is_news(shape: bytes, line: bytes, others: int, peers: int) -> bool:
    if peers > 1 and others * 2 > peers:
        return False
    text = line.decode("utf-8", "replace")
    message = text.partition(" kernel: ")[2]
    if not message.strip() or len(shape) < 4 or message.startswith((" ", "\t", "#")) or harmless().search(text):
        return False
    matched = any(one.match.search(text) for rule in rows() for one in compiled(rule))
    return not matched and not any(one.search(text) for rule in rows() for one in recoveries(rule))
