"""Searches the logs of a bundle for all rules in one pass, and counts events by rule, node and device.

A chunk is searched for the literal texts of all rules first; only lines with such a text are compared with patterns.
Most lines of a log repeat each other except for numbers. So the literals are searched in the distinct lines without
digits, which are few, and only those that occur there in the chunk itself.
"""

from __future__ import annotations

import collections
import datetime as dt
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from rollbook.bundle.log_times import line_time
from rollbook.bundle.reading import Bundle, Chunk
from rollbook.bundle.rows import Compiled, Row, compiled, recoveries, rows, xids
from rollbook.bundle.summary import File, ItemResult
from rollbook.clean import shorten
from rollbook.errors import RecordError
from rollbook.records.findings import EvidenceLine, Severity

__all__ = ["LOGS", "WORST", "Scanner", "Tally", "chosen_item", "chosen_logs", "evidence_text"]

MAX_LINES = 5
LONGEST = 1536  # bytes of a line that are compared with patterns; the kernel's have at most 1024
GRACE, SLOWEST = 20.0, 5 << 20
"""The logs of a node may take this many seconds of CPU time, and a second for this number of bytes.

Usual logs take a hundredth. Lines that are made for it let a pattern take the square of their length.
"""
LONGEST_EVIDENCE = 400  # characters
MAX_DEVICES = 64  # of a rule on a node; further ones are counted together
SLACK = dt.timedelta(seconds=2)
VARYING = b"0123456789abcdef"
IN_UTC = "/cloud-init/"  # an item whose program writes its times in UTC, wherever the node is
WORST: dict[Severity, int] = {"note": 0, "warn": 1, "fail": 2}

LOGS: dict[str, tuple[str, ...]] = {
    "kernel": ("kernel-log", "system-log", "journal-warnings"),
    "previous boot": ("kernel-log-previous",),
    "system": ("journal-warnings", "system-log"),
    "fabric manager": ("gpu-services",),
    "provisioning": ("hyperpod-log", "cloud-init"),
}
"""The items that hold a log, the best first: only the first one that was read is searched, as lines are in several."""


class Event(NamedTuple):
    """A line that a rule matches."""

    device: str
    at: dt.datetime | None
    values: Mapping[str, str]
    severity: Severity | None
    lines: tuple[EvidenceLine, ...]


class Tally:
    """The events of one rule, node and device, inside or outside the time window."""

    def __init__(self, device: str, values: Mapping[str, str]) -> None:
        self.device, self.values = device, values
        self.count = 0
        self.first: dt.datetime | None = None
        self.last: dt.datetime | None = None
        self.severity: Severity | None = None
        self.lines: list[EvidenceLine] = []
        self.most_within = 0
        self.open_since: dt.datetime | None = None
        self.is_open = False
        self.longest = dt.timedelta()
        self._recent: collections.deque[dt.datetime] = collections.deque()

    def add(self, event: Event, row: Row) -> None:
        """Count an event; the first lines are kept, and the last one."""
        self.count += 1
        room = MAX_LINES - len(self.lines)
        if room > 0:
            self.lines += event.lines[:room]
        else:
            self.lines[-1] = event.lines[0]
        if event.severity and (self.severity is None or WORST[event.severity] > WORST[self.severity]):
            self.severity = event.severity
        self.is_open = True
        if event.at is None:
            self.most_within += 1
            return
        self.first = min(self.first or event.at, event.at)
        self.last = max(self.last or event.at, event.at)
        self.open_since = self.open_since or event.at
        if row.least > 1:
            self._recent.append(event.at)
            while (event.at - self._recent[0]).total_seconds() > row.within:
                self._recent.popleft()
            self.most_within = max(self.most_within, len(self._recent))
        else:
            self.most_within = self.count

    def recover(self, at: dt.datetime | None) -> None:
        """The fault ended."""
        if self.is_open and self.open_since and at:
            self.longest = max(self.longest, at - self.open_since)
        self.is_open, self.open_since = False, None


class _Place(NamedTuple):
    """Where a line is: its node, file and number, and its end in a chunk."""

    node: str
    path: str
    line: int
    chunk: Chunk
    end: int


class _Search(NamedTuple):
    """How one rule is searched for."""

    rule: str
    row: Row
    patterns: tuple[Compiled, ...]
    recoveries: tuple[re.Pattern[str], ...]


class Scanner:
    """Searches the logs of one bundle. `inside` and `outside` have the events by rule, then by node."""

    def __init__(self, bundle: Bundle, boots: Mapping[str, dt.datetime], zones: Mapping[str, dt.tzinfo]) -> None:
        self.bundle, self.boots, self.zones = bundle, boots, zones
        self.inside: dict[str, dict[str, dict[str, Tally]]] = {}
        self.outside: dict[str, dict[str, dict[str, Tally]]] = {}
        self.unreadable: dict[str, str] = {}
        self.starts: dict[tuple[str, str, str], dt.datetime | None] = {}
        """The time of the first line by node, log and file."""
        self.bytes = 0
        self._began = 0.0  # CPU time at the start of a node

    def scan(self) -> None:
        """Search all logs of all nodes."""
        by_log: dict[str, list[_Search]] = {}
        for rule, row in rows().items():
            for log in row.logs:
                by_log.setdefault(log, []).append(_Search(rule, row, compiled(rule), recoveries(rule)))
        literals = {log: _literals(searches) for log, searches in by_log.items()}
        for node, items in self.bundle.nodes.items():
            self._began, before = time.process_time(), self.bytes
            for log, found in literals.items():
                for file in chosen_logs(log, items):
                    skip_kernel = log == "system" and "kernel-log" in items and _has_data(items["kernel-log"])
                    try:
                        self._file(node, log, file, found, before, skip_kernel=skip_kernel)
                    except RecordError as error:
                        self.unreadable[file.path] = str(error)

    def _file(
        self,
        node: str,
        log: str,
        file: File,
        literals: Mapping[bytes, list[_Search]],
        before: int,
        *,
        skip_kernel: bool,
    ) -> None:
        """Search a file; `before` are the bytes that were searched before this node."""
        for chunk in self.bundle.chunks(file):
            self.bytes += len(chunk.data)
            if (node, log, file.path) not in self.starts:
                head = chunk.data[:LONGEST].partition(b"\n")[0].decode("utf-8", "replace")
                self.starts[node, log, file.path] = self._time(node, head, file.path)
            for number, start, end, searches in _hits(chunk, literals):
                line = chunk.data[start : min(end, start + LONGEST)]
                if skip_kernel and b" kernel: " in line[:128]:
                    continue
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                here = _Place(node, file.path, number, chunk, end)
                for search in searches:
                    self._compare(here, search, text)
                if time.process_time() - self._began > GRACE + (self.bytes - before) / SLOWEST:
                    raise RecordError("searching the logs of this node takes too long")

    def _compare(self, here: _Place, search: _Search, text: str) -> None:
        node = here.node
        for pattern, severity in search.patterns:
            if found := pattern.search(text):
                values = {name: value or "" for name, value in found.groupdict().items()}
                if "code" in values and (code := xids().get(int(values["code"]))):
                    values["meaning"] = code.meaning
                lines = [
                    EvidenceLine(here.path, here.line, evidence_text(text)),
                    *_following(here, search.row.following),
                ]
                event = Event(
                    values.get("device", ""), self._time(node, text, here.path), values, severity, tuple(lines)
                )
                self._count(node, search, event)
                return
        for recovery in search.recoveries:
            if found := recovery.search(text):
                device = found.groupdict().get("device", "") or ""
                at = self._time(node, text, here.path)
                for tallies in (self.inside, self.outside):
                    if tally := tallies.get(search.rule, {}).get(node, {}).get(device):
                        tally.recover(at)
                return

    def _time(self, node: str, text: str, path: str) -> dt.datetime | None:
        zone = dt.UTC if IN_UTC in path else self.zones.get(node, dt.UTC)
        return line_time(text, self.bundle.read_at[node], self.boots.get(node), zone)

    def _count(self, node: str, search: _Search, event: Event) -> None:
        window = self.bundle.summary.window
        early = event.at is not None and window.since is not None and event.at < window.since - SLACK
        late = event.at is not None and window.until is not None and event.at > window.until + SLACK
        found = (self.outside if early or late else self.inside).setdefault(search.rule, {}).setdefault(node, {})
        if event.device not in found and len(found) >= MAX_DEVICES:
            event = event._replace(device="other devices")
        if event.device not in found:
            found[event.device] = Tally(event.device, event.values)
        found[event.device].add(event, search.row)


def chosen_item(log: str, items: Mapping[str, ItemResult]) -> ItemResult | None:
    """The first item of a node that has data of a log."""
    return next((items[item] for item in LOGS[log] if item in items and _has_data(items[item])), None)


def chosen_logs(log: str, items: Mapping[str, ItemResult]) -> list[File]:
    """The files of a node that hold a log: those of the first item that has data, each line once."""
    item = chosen_item(log, items)
    files = [file for file in item.files if file.size] if item else []
    if item and item.id == "kernel-log":  # journald and dmesg have the same lines
        return sorted(files, key=lambda file: ("journalctl" not in file.source, file.path))[:1]
    if item and item.id == "system-log" and log == "kernel":
        return [file for file in files if file.source.endswith("kern.log")] or files
    return files


def _has_data(item: ItemResult) -> bool:
    return any(file.size for file in item.files)


def _literals(searches: Iterable[_Search]) -> dict[bytes, list[_Search]]:
    found: dict[bytes, list[_Search]] = {}
    for search in searches:
        for literal in search.row.find:
            found.setdefault(literal.encode(), []).append(search)
    return found


def _hits(chunk: Chunk, literals: Mapping[bytes, list[_Search]]) -> Iterator[tuple[int, int, int, list[_Search]]]:
    """Lines with a literal: number, start, end, and the rules to compare, in the order of the lines."""
    data = chunk.data
    found: dict[int, tuple[int, list[_Search]]] = {}
    kinds = b"\n".join(set(data.translate(None, VARYING).split(b"\n")))
    for literal, searches in literals.items():
        at = data.find(literal) if literal.translate(None, VARYING) in kinds else -1
        while at >= 0:
            start = data.rfind(b"\n", 0, at) + 1
            end = data.find(b"\n", at)
            end = len(data) if end < 0 else end
            known = found.setdefault(start, (end, []))[1]
            known += [search for search in searches if search not in known]
            at = data.find(literal, end)
    number, before = chunk.line, 0
    for start in sorted(found):
        number += data.count(b"\n", before, start)
        before = start
        yield number, start, *found[start]


def _following(here: _Place, count: int) -> Iterator[EvidenceLine]:
    """The lines after a line, as far as they are in the same chunk."""
    data, end = here.chunk.data, here.end
    for step in range(1, count + 1):
        start = end + 1
        if start >= len(data):
            return
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        text = data[start : min(end, start + LONGEST)].decode("utf-8", "replace")
        yield EvidenceLine(here.path, here.line + step, evidence_text(text))


def evidence_text(text: str) -> str:
    """A line as evidence, cut to a readable length."""
    return shorten(text.strip(), LONGEST_EVIDENCE)
