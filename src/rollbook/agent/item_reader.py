"""Reads one item of an issue report, in a child of its own. Part of the agent for issue reports; see `evidence.py`."""

import fnmatch
import os
import re
import stat
import struct
import time

from rollbook.agent.item_program import kill_session, run_program
from rollbook.agent.item_timeout import BUSY, ItemTimeout
from rollbook.agent.log_window import BLOCK, line_start, position
from rollbook.agent.matching import below
from rollbook.agent.outgoing import BEFORE, Sink, Tail, escaped
from rollbook.agent.reading import find_program, user_directories

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from rollbook.agent.evidence import Collection

MAX_FILES = 1000  # of an item
MAX_MATCHES = 20000  # of a pattern
KERNEL_FILE = 1 << 16  # bytes of one file below /proc or /sys that a wildcard matched
SMALL = 1 << 20
# The status of an item is the worst of its files and commands.
WORST_FIRST = ("timed-out", "failed", "denied", "truncated", "absent", "complete")
# Never read, whatever an item's pattern matches or a link leads to.
SECRET = re.compile(r".*/\.ssh/.*|/etc/security/opasswd|/etc/kubernetes/.*\.conf|/proc/.*/environ|/proc/k(core|msg)")


def is_kernel(path: str) -> bool:
    """Whether the kernel generates the file when it is read."""
    return path.startswith(("/proc/", "/sys/"))


class Item:
    """One item of the report: limits and what to read."""

    def __init__(
        self, number: str, milliseconds: str, limit: str, keep: str, redact: str, dated: str, first: str
    ) -> None:
        self.number, self.seconds, self.limit = number, int(milliseconds) / 1000, int(limit)
        self.keep, self.redact, self.dated, self.first = keep, redact, dated == "1", first == "1"
        self.parts: "list[list[str]]" = []

    def all(self, word: str) -> "list[str]":
        return [part[1] for part in self.parts if part[0] == word]

    def done(self, status: str, seconds: float, note: str) -> bytes:
        """The message that the item is finished."""
        head = "%s\t-\tdone\t%s\t%d\t" % (self.number, status, seconds * 1e6)
        return head.encode() + escaped(note)


class ItemReader:
    """In the child: reads one item and sends its files as messages through the pipe to the agent."""

    def __init__(self, item: Item, collection: "Collection", out: int) -> None:
        self.item, self.out, self.salt, self.never = item, out, collection.salt, collection.never
        self.since, self.before = float(collection.since or 0), float(collection.before or 0)
        self.began = time.monotonic()
        self.timeout = ItemTimeout(item.seconds, collection.until)
        self.pid = 0  # of the program that runs
        self.files, self.left = 0, item.limit
        self.found: "list[str]" = []  # statuses
        self.notes: "list[str]" = []

    def send(self, payload: bytes) -> None:
        """Send a message; the time that the agent makes us wait is not counted."""
        started = time.monotonic()
        data = struct.pack(">I", len(payload)) + payload
        while data:
            data = data[os.write(self.out, data) :]
        self.timeout.deadline += time.monotonic() - started

    def late(self) -> bool:
        """Whether the timeout has expired. While it is extended, the agent gets a heartbeat."""
        before = self.timeout.deadline
        is_over = self.timeout.is_over(self.pid)
        if self.timeout.deadline != before:
            self.send(b"")
        return is_over

    def late_note(self, what: str) -> str:
        """The reason of an item that timed out."""
        return what + ("; " + BUSY if self.timeout.is_extended else "")

    def run(self) -> None:
        try:
            if self.wanted():
                self.read_all()
        except OSError as error:
            if error.errno == 32:  # the agent is gone
                kill_session(os.getpid())
            self.note("failed", os.strerror(error.errno or 0))
        status = min(self.found, key=WORST_FIRST.index) if self.found else "absent"
        if status == "absent" and self.files:
            status = "complete"
        self.send(self.item.done(status, time.monotonic() - self.began, "; ".join(self.notes)[:400]))

    def note(self, status: str, why: str) -> None:
        self.found.append(status)
        if len(self.notes) < 5 and why not in self.notes:
            self.notes.append(why)

    def wanted(self) -> bool:
        """Whether one of the item's conditions holds; without any, always."""
        conditions = [part[1:] for part in self.item.parts if part[0] == "when"]
        for kind, what in conditions:
            if kind == "command" and find_program(what, user_directories()):
                return True
            if kind == "path" and any(os.path.exists(path) for path in self.matches(what)):
                return True
        if conditions:
            self.note("absent", "this node has none of %s" % ", ".join(what for _, what in conditions))
        return not conditions

    def read_all(self) -> None:
        """Read paths, then commands. All share the limit: small ones are read whole, the others get equal parts."""
        plans: "list[tuple[int, str, object]]" = []  # size that is wanted, kind, what
        seen = set()  # type: set[str]
        for pattern in self.item.all("path"):
            if is_kernel(pattern) and "*" in pattern:
                plans.append((self.item.limit, "pattern", pattern))
                continue
            for path in self.matches(pattern):
                if len(plans) >= MAX_FILES:
                    self.note("truncated", "only the first %d files of %s" % (MAX_FILES, pattern))
                    break
                if path not in seen:
                    seen.add(path)
                    plans.append((self.size_of(path), "file", path))
        commands = list(self.commands())
        plans += [(self.item.limit, "command", argv) for argv in commands]
        left, shares = self.left, {}  # type: int, dict[int, int]
        for at, (size, _, _) in enumerate(sorted(plans, key=lambda plan: plan[0])):
            share = min(size, left // (1 if self.item.first else len(plans) - at))
            shares[size] = max(shares.get(size, 0), share)
            left -= share
        spare = 0
        for size, kind, what in plans:
            allowed, before = shares[size] + spare, self.left
            if kind == "command":
                self.timeout.restart()
                if run_program(self, what, allowed) and self.item.first:  # type: ignore[arg-type]
                    break
            elif self.late():
                self.note("timed-out", self.late_note("not all files were read"))
                continue
            elif kind == "pattern":
                self.read_pattern(str(what), allowed)
            else:
                self.read_file(str(what), allowed)
            spare = max(0, allowed - (before - self.left))

    def commands(self) -> "Iterator[list[str]]":
        each = [os.path.basename(path) for pattern in self.item.all("for") for path in self.matches(pattern)]
        for part in self.item.parts:
            if part[0] == "command":
                if any("{each}" in word for word in part):
                    for name in each[:MAX_FILES]:
                        yield [word.replace("{each}", name) for word in part[1:]]
                else:
                    yield part[1:]

    def size_of(self, path: str) -> int:
        try:
            return SMALL if is_kernel(path) else os.stat(path).st_size
        except OSError:
            return 0

    def matches(self, pattern: str) -> "Iterator[str]":
        """Paths that match: `*` within a directory, `**` any depth of directories, without following links."""
        if "*" not in pattern and "?" not in pattern and "[" not in pattern:
            yield pattern
            return
        excluded = self.item.all("exclude")
        for count, path in enumerate(below("/", pattern.strip("/").split("/"))):
            if count >= MAX_MATCHES or self.late():
                self.note("truncated", "%s matches too much" % pattern)
                return
            if not any(fnmatch.fnmatchcase(path, other.replace("**", "*")) for other in excluded):
                yield path

    def failed(self, path: str, error: OSError) -> None:
        reason = os.strerror(error.errno or 0)
        if error.errno in (1, 13):
            self.note("denied", "%s: %s" % (path, reason))
        elif error.errno not in (2, 20, 6, 19):
            self.note("failed", "%s: %s" % (path, reason))
        else:
            self.found.append("absent")

    def open(self, path: str) -> int:
        """Open a regular file; raises OSError, including for secrets and for everything that is not a regular file."""
        real = os.path.realpath(path)
        names = os.path.basename(real), os.path.basename(path)
        never = any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self.never)
        if never or SECRET.fullmatch(real) or SECRET.fullmatch(path):
            self.note("denied", "%s: never read, may hold a secret" % path)
            raise OSError(2, "")
        if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened: opening a device may have effects
            raise OSError(2, "")
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    def read_file(self, path: str, allowed: int) -> None:
        try:
            fd = self.open(path)
            try:
                if is_kernel(path):
                    self.read_stream(fd, path, allowed)
                else:
                    self.read_part(fd, path, allowed)
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno == 32:
                raise
            self.failed(path, error)

    def read_part(self, fd: int, path: str, allowed: int) -> None:
        """The part of a file that is in the time window and within the limit."""
        about = os.fstat(fd)
        start, end = 0, about.st_size
        if self.item.dated and (self.since or self.before):
            if self.since and about.st_mtime < self.since:
                self.note("absent", "%s: older than the time window" % path)
                return
            # As for programs, lines of which no time is known are in the window.
            start = position(fd, end, self.since) or 0 if self.since else 0
            after = position(fd, end, self.before + 1) if self.before else None
            end = end if after is None else after
        first, last = start, end
        if end - start > allowed:
            if self.item.keep == "tail":
                first = line_start(fd, end - allowed)
            else:
                last = start + allowed
        sink = Sink(self, path)
        if first > start:
            from_ = max(start, first - BEFORE)
            before = os.pread(fd, first - from_, from_)
            sink.skip(before[before.find(b"\n") + 1 :] if from_ > start else before)
        at = first
        while at < last and not self.late():
            block = os.pread(fd, min(BLOCK, last - at), at)
            if not block:
                break  # the file was shortened
            at += len(block)
            sink.write(block)
        self.left -= at - first
        sink.end(first - start, end - at if at < last or last < end else 0)
        if self.late() and at < last:
            self.note("timed-out", self.late_note("%s: not read to its end" % path))
        elif first > start or last < end:
            self.found.append("truncated")

    def read_stream(self, fd: int, source: str, allowed: int) -> None:
        """A file of the kernel: it reports a wrong size, so it is read to its end."""
        sink, tail, read = Sink(self, source), Tail(allowed), 0
        more = True
        while more and not self.late():
            block = os.read(fd, BLOCK)
            more = bool(block)
            read += len(block)
            if self.item.keep == "tail":
                tail.add(block)
                continue
            sink.write(block[: max(0, allowed - read + len(block))])
            if read > allowed:
                break
        before = tail.pour(sink)
        self.left -= min(read, allowed)
        sink.end(before, -1 if more else 0)
        if more and self.late():
            self.note("timed-out", self.late_note("%s: not read to its end" % source))
        elif before or more:
            self.found.append("truncated")

    def read_pattern(self, pattern: str, allowed: int) -> None:
        """All files of the kernel that a pattern matches, as one file."""
        sink, used, late, denied = None, 0, False, ""  # type: Sink | None, int, bool, str
        for path in self.matches(pattern):
            late = self.late()
            if late or used >= allowed:
                break
            try:
                text = self.read_small(path, min(KERNEL_FILE, allowed - used))
            except OSError as error:
                denied = path if error.errno in (1, 13) else denied  # some files of the kernel can only be written
                if error.errno in (1, 2, 6, 13, 19, 20):
                    continue
                text = b"[" + os.strerror(error.errno or 0).encode() + b"]\n"
            sink = sink or Sink(self, pattern)
            part = b"==> " + escaped(path) + b" <==\n" + text + (b"" if text.endswith(b"\n") else b"\n")
            sink.write(part)
            used += len(part)
        self.left -= used
        if late:
            self.note("timed-out", self.late_note("%s: not all files were read" % pattern))
        elif used >= allowed:
            self.found.append("truncated")
        if sink:
            sink.end(0, -1 if late or used >= allowed else 0)
        elif denied:
            self.note("denied", denied + ": " + os.strerror(13))

    def read_small(self, path: str, limit: int) -> bytes:
        """The start of a file of the kernel, which may give a page at a time."""
        fd, text, piece = self.open(path), b"", b"-"
        try:
            while piece and len(text) < limit:
                piece = os.read(fd, limit - len(text))
                text += piece
        finally:
            os.close(fd)
        return text
