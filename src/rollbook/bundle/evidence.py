"""The input of the rules of an issue report: the snapshot, the files of items, and the events in logs."""

from __future__ import annotations

import contextlib
import datetime as dt
import fnmatch
import functools
import re
import statistics
import zoneinfo
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rollbook.bundle.logs import LOGS, Scanner, chosen_item, chosen_logs, evidence_text
from rollbook.bundle.reading import LARGEST_TEXT, Bundle
from rollbook.bundle.summary import File, ItemResult
from rollbook.checks.rule import Rule
from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell, NotApplicable, RecordError
from rollbook.hosts import fold
from rollbook.records.findings import EvidenceLine, Finding, Severity
from rollbook.records.record import RecordHosts
from rollbook.sources.time_sync import TimeSync
from rollbook.sources.uptime import Uptime

__all__ = ["BundleData", "Text", "node_finding"]

READ = ("complete", "truncated")
BEFORE_A_RUN = frozenset({"background-load", "gpu-in-use"})
"""Rules of snapshots that expect idle hosts; a report is taken while jobs run."""
UNLISTED = ("only the first ", "matches too much")
"""In the reason of an item: not all paths of a pattern were read."""
ENDS_EARLY = re.compile(r"\bthe (?:last|end)\b")
"""In what a file lacks: not only its beginning."""
OFFSET = re.compile(r"[+-]\d{4}$", re.MULTILINE)
HEAD = re.compile(r"^==> (/.+) <==$", re.MULTILINE)


def node_finding(
    node: str | Sequence[str],
    message: str,
    *,
    device: str = "",
    severity: Severity | None = None,
    lines: Sequence[EvidenceLine] = (),
    count: int = 1,
    at: dt.datetime | None = None,
) -> Finding:
    """What a rule found on one node, or on several; an empty name stands for none."""
    hosts = [name for name in ([node] if isinstance(node, str) else node) if name]
    text = f"{message} ({fold(hosts)})" if hosts else message
    return Finding(
        message=text, hosts=hosts, severity=severity, device=device, count=count, first=at, last=at, lines=list(lines)
    )


class Text(NamedTuple):
    """What was read from one source. `node` is empty for what was read once for the whole cluster.

    A file can hold many small files of the kernel: then `source` is the path of one, and `before` the lines before it.
    """

    node: str
    file: File
    source: str
    text: str
    before: int = 0

    def lines(self) -> Iterator[tuple[int, str]]:
        """Lines and their numbers, from 1 for the first one of this source."""
        yield from enumerate(self.text.split("\n"), 1)

    def first_line(self) -> tuple[int, str]:
        """Number and text of the first line that is not blank."""
        return next(((number, line.strip()) for number, line in self.lines() if line.strip()), (1, ""))

    def quote(self, *numbers: int) -> tuple[EvidenceLine, ...]:
        """Lines as evidence."""
        lines = self.text.split("\n")
        path, before = self.file.path, self.before
        return tuple(EvidenceLine(path, before + n, evidence_text(lines[n - 1])) for n in numbers if n <= len(lines))


class BundleData(RunData):
    """An issue report as its rules read it."""

    def __init__(self, bundle: Bundle, hosts: RecordHosts, rules: Sequence[Rule] = (), **options: Any) -> None:
        super().__init__(hosts, path=bundle.directory, **options)
        self.more_rules, self.skipped_rules = rules, BEFORE_A_RUN
        self.bundle = bundle
        self.unreadable: dict[str, str] = {}
        self.partial: dict[str, str] = {}
        """What the rule that is applied has read of items of the cluster that are not whole, and why not, by item.

        Apart from `unreadable`, because `report-incomplete` lists these items by their status.
        """

    @functools.cached_property
    def logs(self) -> Scanner:
        """The events in all logs."""
        scanner = Scanner(self.bundle, self._boots(), self.zones)
        scanner.scan()
        self.unreadable |= scanner.unreadable
        return scanner

    def texts(self, item: str, *sources: str) -> Iterator[Text]:
        """The files of an item on every node that has it; `sources` are patterns of what was read."""
        for node, items in self.bundle.nodes.items():
            if item in items:
                yield from self._texts(node, items[item], sources)

    def cluster_texts(self, *sources: str) -> Iterator[Text]:
        """The files that were read once, by patterns of what was read; `partial` has the items with such a file.

        With one pattern, a whole file is enough. With several, a query without a file may be the one that matters.
        """
        for item in self.bundle.cluster.values():
            files = [file for file in item.files if _fits(file.source, sources)]
            is_whole = len(sources) == 1 and not any(file.truncated or file.exit_status for file in files)
            if files and not is_whole and item.status not in ("complete", "absent"):
                self.partial[item.id] = f"{item.id} {item.status}" + (f" ({item.reason})" if item.reason else "")
            yield from self._texts("", item, sources)

    def require_cluster(self, part: str) -> None:
        """Raise why there is nothing from a part of the cluster: it does not exist, or could not be read."""
        for item in self.bundle.cluster.values():
            if item.id.startswith(part) and item.status not in (*READ, "absent"):
                raise CannotTell(f"{item.id}: {item.reason or item.status}")
        raise NotApplicable(f"this report has no cluster data from {part}")

    def _texts(self, node: str, item: ItemResult, sources: Sequence[str]) -> Iterator[Text]:
        for file in item.files:
            is_pattern = any(sign in file.source for sign in "*?[{") and file.source.startswith("/")
            if not is_pattern and not _fits(file.source, sources):
                continue
            try:
                text = self.bundle.text(file)
            except RecordError as error:
                self.unreadable[file.path] = str(error)
                continue
            if file.size > LARGEST_TEXT:  # what was read is compared all the same
                self.unreadable[file.path] = f"{file.path}: only the first {LARGEST_TEXT >> 20} MiB were compared"
            parts = _unpack(text) if is_pattern else [(file.source, text, 0)]
            yield from (Text(node, file, *part) for part in parts if _fits(part[0], sources))

    def unread(self, logs: Sequence[str], items: Sequence[str]) -> tuple[bool, dict[str, list[str]]]:
        """Whether any node has one of the logs or items, and the nodes on which one was not read, by reason."""
        is_present, reasons = False, dict[str, list[str]]()
        for node in self.bundle.summary.results:
            found = self.bundle.nodes[node.node]
            for name, candidates in [*((log, LOGS[log]) for log in logs), *((item, (item,)) for item in items)]:
                states = [found[one] for one in candidates if one in found]
                if any(state.status in READ for state in states):
                    is_present = True
                    if why := self._cut(node.node, name, states):
                        reasons.setdefault(why, []).append(node.node)
                elif bad := next((state for state in states if state.status != "absent"), None):
                    reasons.setdefault(f"{bad.id} {bad.reason or bad.status}", []).append(node.node)
                elif not states and not found:
                    why = node.reason or node.status
                    reasons.setdefault(f"no items: {why}", []).append(node.node)
                elif node.status == "not-tried" and len(states) < len(candidates):  # its end did not come
                    reasons.setdefault(f"not finished: {node.reason or node.status}", []).append(node.node)
        return is_present, reasons

    def unreadable_in(self, items: Collection[str], part: str) -> list[str]:
        """Why files of these items on nodes, or of this part of the cluster, could not be read."""
        found = []
        for path, reason in self.unreadable.items():
            match path.split("/"):
                case ["nodes", _, item, *_] if item in items:
                    found.append(reason)
                case ["cluster", item, *_] if item.startswith(f"{part}-"):
                    found.append(reason)
        return found + [reason for item, reason in self.partial.items() if part and item.startswith(part)]

    def _cut(self, node: str, name: str, states: Sequence[ItemResult]) -> str:
        """Why a log is not whole; empty if each of its files reaches back to the start of the time window."""
        items = self.bundle.nodes[node]
        chosen = chosen_item(name, items) if name in LOGS else None
        state = chosen or next(state for state in states if state.status in READ)
        if state.status not in READ:  # the item that is searched, though another one is whole
            return f"{state.id} {state.reason or state.status}"
        if any(sign in state.reason for sign in UNLISTED):
            return f"{state.id} was truncated ({state.reason})"
        if state.status != "truncated":
            return ""
        if chosen is None:
            reason = next((file.truncated for file in state.files if file.truncated), "") or state.reason
            return f"{state.id} was truncated ({reason})" if reason else f"{state.id} was truncated"
        # Of a file without any byte, not even the first line is known.
        empty = [file for file in chosen.files if not file.size] if chosen.id != "kernel-log" else []
        cut = next((file for file in [*chosen_logs(name, items), *empty] if self._lacks(node, name, file)), None)
        return f"{state.id} was truncated ({cut.truncated})" if cut else ""

    def _lacks(self, node: str, log: str, file: File) -> bool:
        """Whether a file of a log was truncated after the start of the time window."""
        start, since = self.logs.starts.get((node, log, file.path)), self.bundle.summary.window.since
        reaches_back = start is not None and since is not None and start <= since
        return bool(file.truncated) and not (reaches_back and not ENDS_EARLY.search(file.truncated))

    def peers_of(self, node: str) -> list[str]:
        """The other nodes of its group; all other nodes if its hardware is unknown."""
        for group in self.groups:
            names = [host.name for host in group.hosts]
            if node in names:
                return [name for name in names if name != node]
        return [name for name in self.bundle.nodes if name != node]

    def peer_median(self, node: str, values: Mapping[str, float]) -> float | None:
        """The median of a value over the node's peers; None for fewer than two peers that have it."""
        found = [values[name] for name in self.peers_of(node) if name in values]
        return statistics.median(found) if len(found) > 1 else None

    def collector_time(self, node: str, at: dt.datetime) -> int:
        """A time of a node on the collector's clock, in nanoseconds since 1970."""
        offset = next((host.clock.offset_ns for host in self.start if host.name == node and host.clock), 0)
        return int(at.timestamp() * 10**9) + offset

    def _boots(self) -> dict[str, dt.datetime]:
        found: dict[str, dt.datetime] = {}
        for host, uptime in self.each(Uptime):
            if host.collected_at:
                read = dt.datetime.fromisoformat(host.collected_at)
                found[host.name] = read - dt.timedelta(seconds=uptime.uptime_seconds)
        return found

    @functools.cached_property
    def zones(self) -> dict[str, dt.tzinfo]:
        """The time zones of nodes: by name if this machine knows it, else the offset when the node was read."""
        found: dict[str, dt.tzinfo] = {}
        for text in self.texts("identity", "date *"):
            if offset := OFFSET.search(text.text):
                found[text.node] = dt.datetime.strptime(offset[0], "%z").tzinfo or dt.UTC
        for host, clock in self.each(TimeSync):
            with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
                found[host.name] = zoneinfo.ZoneInfo(clock.timezone or "")
        return found


def _fits(source: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(source, pattern) for pattern in patterns)


def _unpack(text: str) -> Iterator[tuple[str, str, int]]:
    """The parts of a file with the content of many paths: path, text, and the number of lines before the text."""
    heads = list(HEAD.finditer(text))
    before, at = 0, 0
    for head, following in zip(heads, [*heads, None][1:], strict=True):
        before += text.count("\n", at, head.end() + 1)
        at = min(head.end() + 1, len(text))
        yield head[1], text[at : following.start() if following else len(text)], before
