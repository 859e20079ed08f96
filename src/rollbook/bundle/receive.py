"""Writes what a node sends, as untrusted input.

A node names items and files by number; their paths are made here, from names that are made safe. Sizes, counts and
texts are limited by what was requested. A node that exceeds a limit, or sends what no agent sends, is disconnected, and
what it sent before is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, get_args

import msgspec

from rollbook.agent.outgoing import unescaped
from rollbook.bundle.items import Item
from rollbook.bundle.request import MIB, mask_text
from rollbook.bundle.summary import File, ItemResult, ItemStatus
from rollbook.errors import AgentFailed, RecordError
from rollbook.files import atomic_file, write_file
from rollbook.metrics.formatting import amount
from rollbook.records.reading import require_directory

__all__ = ["NodeFiles", "Redaction", "Redactions", "Space", "file_name", "take_name"]

MAX_FILES = 2000  # of an item: more than the agent sends
MAX_NODE_FILES = 20_000
MAX_OPEN = 64  # files at a time: the agent sends four, and the collector's descriptors are those of all nodes
CHUNK = 1 << 17  # inflated bytes in a frame
LONGEST_NAME, LONGEST_SOURCE, LONGEST_NOTE, LONGEST_HEAD = 100, 4096, 500, 16384
LARGEST_LOG = 2 * MIB  # bytes of the redactions of a file
LOG_RATIO = 32  # times that redactions may be deflated; each has a mark of its own
MAX_LOGGED = 64 * MIB  # bytes of the redactions of a node
MAX_REDACTIONS = 50_000  # of a node; further ones are counted
STATUSES: tuple[ItemStatus, ...] = get_args(ItemStatus)
CHECK_EVERY = 4 * MIB
LOST = "a part was lost in transit"
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~-]{0,120}")


class Space:
    """The bytes that a run may still write, and the free space that it leaves on its disk."""

    def __init__(self, directory: Path, limit: int, free: int) -> None:
        self._directory, self._left, self._free, self._limit = directory, limit, free, limit
        self._unchecked = CHECK_EVERY

    def take(self, size: int) -> None:
        """Count bytes that are about to be written; raises `RecordError` if the limit is reached."""
        self._left -= size
        self._unchecked += size
        if self._left < 0:
            raise RecordError(f"the limit of this run, {amount(self._limit, 'B')}, is reached")
        if self._unchecked >= CHECK_EVERY:
            self._unchecked = 0
            self.check()

    def check(self) -> None:
        """Raise `RecordError` if less than the reserve is free."""
        try:
            free = shutil.disk_usage(self._directory).free
        except OSError:
            return
        if free < self._free:
            raise RecordError(f"less than {self._free / MIB:,.0f} MiB is free on the disk of {self._directory}")


class Redaction(msgspec.Struct, frozen=True):
    """What a rule replaced in a line of a file; equal secrets have equal marks."""

    path: str
    rule: str
    line: int
    count: int
    mark: str


class Redactions(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.redactions/1"):
    """`redactions.json` of a node: what was replaced, where, by which rule; never the value."""

    redactions: list[Redaction]
    unlisted: int = 0
    note: str = ""
    """If the bundle was resumed without the key of its first marks: that they cannot be compared."""


def file_name(source: str) -> str:
    """A safe name for what was read: a path or a command."""
    name = UNSAFE.sub("_", source).strip("._-")[:LONGEST_NAME].rstrip("._-")
    return name or "file"


def take_name(name: str, taken: set[str]) -> str:
    """A name that is not taken yet, the second of `eth0` as `eth0~2`; adds it to those that are."""
    unique, count = name, 1
    while unique in taken:
        count += 1
        unique = f"{name}~{count}"
    taken.add(unique)
    return unique


class _Open:
    """A file that is being received."""

    def __init__(self, path: Path, relative: str, source: str) -> None:
        self.relative, self.source = relative, source
        self.size, self.redactions, self.hash = 0, 0, hashlib.sha256()
        self._stack = contextlib.ExitStack()
        # Not synced, because a node has hundreds of files. One that a crash damages does not have its recorded hash, so
        # `--resume` reads its item again.
        self._file: IO[bytes] = self._stack.enter_context(atomic_file(path, sync=False))

    def write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise RecordError(f"cannot write {self.relative}: {error.strerror}") from error
        self.hash.update(data)
        self.size += len(data)

    def close(self, truncated: str, code: int | None) -> File:
        self._stack.close()
        return File(
            path=self.relative,
            source=self.source,
            size=self.size,
            sha256=self.hash.hexdigest(),
            truncated=truncated,
            exit_status=code,
            redactions=self.redactions,
        )


class _Received:
    """The state of one item."""

    def __init__(self) -> None:
        self.started = self.done = False
        self.lost = False  # a frame of it was lost in transit
        self.open: dict[int, _Open] = {}
        self.files: list[File] = []
        self.redactions: list[Redaction] = []
        self.names: set[str] = set()
        self.count = self.size = 0


class NodeFiles:
    """Takes the item frames of one node and writes its files below `directory`, which is `relative` in the bundle.

    `on_item` is called with every item that is finished, and with what was replaced in it. `take` raises `AgentFailed`
    for a node that must be disconnected, and `RecordError` if nothing more can be written; `finish` completes the items
    that are not complete.
    """

    def __init__(
        self,
        directory: Path,
        relative: str,
        items: Sequence[Item],
        *,
        space: Space,
        node_bytes: int,
        on_item: Callable[[ItemResult, list[Redaction]], None],
    ) -> None:
        self._directory, self._relative, self._items, self._space = directory, relative, items, space
        self._left = node_bytes + node_bytes // 4 + 16 * MIB  # marks may be longer than what they replace
        self._on_item = on_item
        self._received = [_Received() for _ in items]
        self._listed = self.unlisted = 0
        self._files = self._logged = 0

    def take(self, payload: bytes) -> None:
        """Process one frame."""
        end = payload.find(b"\n", 0, LONGEST_HEAD)
        head = payload[: end if end >= 0 else LONGEST_HEAD].decode("utf-8", "backslashreplace")
        fields = [unescaped(field) for field in head.split("\t")]
        body = payload[end + 1 :] if end >= 0 else b""
        if len(fields) < 3:
            raise _invalid("a frame without a header")
        number = _number(fields[0], len(self._items) - 1)
        received = self._received[number]
        if received.done:
            raise _invalid("an item twice")
        word, rest = fields[2], fields[3:]
        if fields[1] != "-":
            self._file_frame(number, _number(fields[1], MAX_FILES), word, rest, body)
        elif word == "done" and len(rest) == 3:
            self._done(number, *rest)
        else:
            raise _invalid("a frame of an unknown kind")

    def _file_frame(self, number: int, file: int, word: str, rest: list[str], body: bytes) -> None:
        received = self._received[number]
        if word == "open" and rest:
            self._open(number, file, *rest[:2])
            return
        if file not in received.open:
            received.lost = True  # its first frame
            return
        opened = received.open[file]
        if word == "data":
            self._data(number, opened, _inflate(body, CHUNK))
        elif word == "log":
            self._log(received, opened, body)
        elif word == "end" and len(rest) == 4:
            del received.open[file]
            before, after, size = _signed(rest[0]), _signed(rest[1]), _number(rest[3], 1 << 49)
            lost = LOST if opened.size != size else ""
            received.lost = received.lost or bool(lost)
            missing = "; ".join(filter(None, [_missing(opened.size, before, after), lost]))
            received.files.append(opened.close(missing, None if rest[2] == "-" else _signed(rest[2])))
        else:
            raise _invalid("a frame of an unknown kind")

    def write(self, number: int, file: int, data: bytes) -> None:
        """The next bytes of a file, as `take` gets them in frames."""
        self._data(number, self._received[number].open[file], data)

    def keep(self, name: str, data: bytes) -> None:
        """Write a file of the node that belongs to no item."""
        self._space.take(len(data))
        write_file(self._directory / name, data)

    def finish(self, reason: str) -> None:
        """End the items that have not ended; those that were not started are not read, for this reason."""
        for number, received in enumerate(self._received):
            if received.done:
                continue
            for opened in received.open.values():
                received.files.append(opened.close(f"the end: {reason}", None))
            received.open.clear()
            self._report(number, "failed" if received.started else "not-read", reason)

    def _open(self, number: int, file: int, source: str, given: str = "") -> None:
        """Open a file; in an archive it has a name already, which it keeps."""
        received, item = self._received[number], self._items[number]
        received.count += 1
        self._files += 1
        if file in received.open or received.count > MAX_FILES or self._files > MAX_NODE_FILES:
            raise _invalid("too many files")
        if sum(len(one.open) for one in self._received) >= MAX_OPEN:
            raise _invalid("too many files at a time")
        directory = self._directory / item.id
        if not received.started:
            received.started = True
            # What an earlier, interrupted attempt left is replaced.
            require_directory(directory)
            shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        source = mask_text(source) if " " in source else source
        if given and (not SAFE.fullmatch(given) or given in received.names):
            raise _invalid("an unsafe file name")
        name = take_name(given or file_name(source), received.names)
        relative = f"{self._relative}/{item.id}/{name}"
        received.open[file] = _Open(directory / name, relative, source[:LONGEST_SOURCE])

    def _data(self, number: int, opened: _Open, data: bytes) -> None:
        received, item = self._received[number], self._items[number]
        received.size += len(data)
        self._left -= len(data)
        if received.size > 2 * item.limit + MIB or self._left < 0:
            raise AgentFailed(f"disconnected: the node sends more than the limit of the item {item.id} allows")
        self._space.take(len(data))
        opened.write(data)

    def _log(self, received: _Received, opened: _Open, body: bytes) -> None:
        text = _inflate(body, min(LARGEST_LOG, LOG_RATIO * len(body) + LOG_RATIO))
        self._logged += len(text)
        if self._logged > MAX_LOGGED:
            raise _invalid("too many redactions")
        for line in text.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n"):
            fields = line.split("\t")
            if len(fields) != 4:
                raise _invalid("a malformed redaction")
            count = _number(fields[2], 1 << 40)
            opened.redactions += count
            if self._listed >= MAX_REDACTIONS:
                self.unlisted += count
                continue
            self._listed += 1
            rule, mark = fields[0][:LONGEST_NAME], fields[3][:LONGEST_NAME]
            received.redactions.append(Redaction(opened.relative, rule, _number(fields[1], 1 << 40), count, mark))

    def _done(self, number: int, status: str, micros: str, note: str) -> None:
        received = self._received[number]
        if status not in STATUSES:
            raise _invalid("an unknown status")
        for opened in received.open.values():
            received.files.append(opened.close("the end: the item ended first", None))
            received.lost = True  # its last frame
        received.open.clear()
        note = mask_text(note) if " " in note else note  # it may name a command of the user
        if received.lost and status in ("complete", "truncated", "absent"):
            status, note = "failed", "; ".join(filter(None, [note, LOST]))
        self._report(number, status, note[:LONGEST_NOTE], _number(micros, 1 << 50) / 1e6)

    def _report(self, number: int, status: str, reason: str, seconds: float = 0.0) -> None:
        received = self._received[number]
        received.done = True
        item = ItemResult(
            id=self._items[number].id,
            status=msgspec.convert(status, ItemStatus),
            reason=reason,
            seconds=round(seconds, 6),
            files=received.files,
        )
        self._on_item(item, received.redactions)


def _inflate(data: bytes, most: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, most)
    except zlib.error as error:
        raise _invalid(f"data that cannot be inflated ({error})") from error
    if not inflater.eof:
        raise _invalid("a frame with too much data")
    return inflated


def _missing(size: int, before: int, after: int) -> str:
    """What a file lacks, in words; empty if nothing."""
    total = size + max(0, before) + max(0, after)
    parts = [f"the first {amount(before, 'B')}"] if before > 0 else []
    if after:
        parts.append(f"the last {amount(after, 'B')}" if after > 0 else "the end")
    return f"{' and '.join(parts)} of {amount(total, 'B')}" if parts and after >= 0 else " and ".join(parts)


def _number(text: str, most: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15 or int(text) > most:
        raise _invalid(f"the number {text[:20]!r}")
    return int(text)


def _signed(text: str) -> int:
    return -_number(text[1:], 1 << 49) if text.startswith("-") else _number(text, 1 << 49)


def _invalid(what: str) -> AgentFailed:
    return AgentFailed(f"disconnected: the node violated the protocol: it sent {what}")
