"""Children that read a host once: files and mounts one after the other, programs in parallel."""

import os
import struct
import time

from rollbook.agent.children import UNSTARTED, Child, exec_program
from rollbook.agent.reading import Tree, find_program, mounts, page, read_space, truncated_page, user_directories
from rollbook.agent.source import Source
from rollbook.agent.wire import now

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rollbook.agent.loop import Agent
    from rollbook.agent.wire import Clocks


class Program(Child):
    """A program of the host; its output is a page of a reading."""

    def __init__(self, agent: "Agent", reading: "Reading", argv: "list[str]") -> None:
        self.reading, self.argv, self.limit, self.truncated = reading, argv, reading.source.limit, False
        Child.__init__(self, agent, reading.source.seconds, agent.children)

    def work(self, out: int, err: int) -> None:
        exec_program(self.argv, out, err)

    def progress(self) -> None:
        del self.err[4096:]
        if len(self.out) > self.limit:
            del self.out[self.limit :]
            self.truncated = True
            self.end()

    def finished(self, timed_out: bool) -> None:
        name, message = " ".join(self.argv), self.err.decode("utf-8", "replace").strip()
        if timed_out:
            status = "timed-out"
        elif self.truncated:
            status = "truncated"
        elif self.code == 127 and message in ("absent", "denied"):
            status = message
        else:
            status = "ok" if self.out or not self.code else "failed"
        if status == "failed":
            self.reading.note = (name + ": " + (message or "exit status %d" % self.code))[:500]
        data = self.shortage() if status == "failed" else bytes(self.out)
        self.reading.add(truncated_page(name, data) if self.truncated else page(name, status, data), status)


class Walk(Child):
    """Reads items one after the other in one child; an item that blocks affects only itself."""

    def __init__(self, agent: "Agent", items: "list[Plain | Mount]") -> None:
        self.items = items
        Child.__init__(self, agent, items[0].seconds(), agent.children)

    def work(self, out: int, err: int) -> None:
        os.close(err)
        tree = Tree()
        for item in self.items:
            clocks = now()
            data = item.pages(tree)
            took = (now()[0] - clocks[0]) // 1000
            data = struct.pack("=IIQQ", len(data), took, *clocks) + data
            while data:
                data = data[os.write(out, data) :]
        os._exit(0)

    def progress(self) -> None:
        while len(self.out) >= 24:
            length, took, mono, wall = struct.unpack_from("=IIQQ", self.out)
            if len(self.out) < 24 + length:
                return
            data = bytes(self.out[24 : 24 + length])
            del self.out[: 24 + length]
            self.items.pop(0).done("-", data, (mono, wall), took)
            if self.items:
                self.deadline = time.monotonic() + self.items[0].seconds()

    def finished(self, timed_out: bool) -> None:
        if not self.items:
            return
        # The child hangs or died at its current item: report that item, read the next ones in a new child.
        since = time.monotonic() - self.deadline + self.items[0].seconds() if self.pid else 0.0
        reason = b"" if self.pid else UNSTARTED
        self.items.pop(0).done("timed-out" if timed_out else "failed", reason, now(), int(since * 1e6))
        while self.items and self.items[0].seconds() <= 0:
            self.items.pop(0).done("timed-out", b"", now(), 0)
        if self.items:
            Walk(self.agent, self.items)


class Plain:
    """A source that consists of files only, as an item of a walk."""

    def __init__(self, agent: "Agent", source: "Source", phase: str) -> None:
        self.agent, self.source, self.phase = agent, source, phase

    def seconds(self) -> float:
        return self.source.seconds

    def pages(self, tree: Tree) -> bytes:
        return self.source.pages(tree)

    def done(self, status: str, pages: bytes, clocks: "Clocks", took: int) -> None:
        if status != "-":
            pages = self.source.failure(status, pages)
        self.agent.reading(self.source, self.phase, pages, clocks, took, status)


class Files(Plain):
    """The files of a source that also has programs, as an item of a walk."""

    def __init__(self, reading: "Reading") -> None:
        Plain.__init__(self, reading.agent, reading.source, reading.phase)
        self.reading = reading

    def done(self, status: str, pages: bytes, _clocks: "Clocks", _took: int) -> None:
        if status != "-":
            pages = self.source.failure(status, pages)
        self.reading.parts.insert(0, pages)  # files come first, so that equal hosts send equal readings
        self.reading.add(b"", status)


class Mount:
    """A mounted file system, as an item of a walk; the mounts of one source share its timeout."""

    def __init__(self, reading: "Reading", path: str) -> None:
        self.reading, self.path = reading, path

    def seconds(self) -> float:
        return min(2.0, self.reading.left)

    def pages(self, _tree: Tree) -> bytes:
        return read_space(self.path)

    def done(self, status: str, data: bytes, _clocks: "Clocks", took: int) -> None:
        self.reading.left -= took / 1e6
        self.reading.add(data if status == "-" else page(self.path, status, data), status)


def argvs(ask: "list[str]") -> "list[list[str]]":
    """The programs to run for one line of the plan: one, or one for each matching path."""
    if ask[0] != "each":
        return [ask[1:]] if ask[0] == "run" else []
    names = [os.path.basename(path) for path in Tree().matches(ask[1])[1] if os.path.exists(path)]
    return [[word.replace("{}", name) for word in ask[2:]] for name in names]


class Reading:
    """A source that children are reading; sent when its last page is complete.

    A walk reads its `files` and `mounts`; its programs run from `begin` on.
    """

    def __init__(self, agent: "Agent", source: "Source", phase: str) -> None:
        self.agent, self.source, self.phase = agent, source, phase
        self.parts: "list[bytes]" = []
        self.status, self.note, self.left = "-", "", source.seconds
        self.programs = [argv for ask in source.asks for argv in argvs(ask)]
        self.files = [Files(self)] if source.does("read", "link", "env") else []
        self.mounts = [Mount(self, path) for path in mounts()] if source.does("space") else []
        # And one until all programs are started.
        self.pending = len(self.programs) + len(self.files) + len(self.mounts) + 1

    def begin(self) -> None:
        """Start the programs."""
        self.clocks = now()
        for argv in self.programs:
            # Starting a child only to find that the program does not exist is too expensive.
            if user_directories() or find_program(argv[0], []):
                Program(self.agent, self, argv)
            else:
                self.add(page(" ".join(argv), "absent"), "absent")
        self.add(b"", "")

    def add(self, part: bytes, status: str) -> None:
        self.parts.append(part)
        if status == "timed-out":
            self.status = status
        self.pending -= 1
        if not self.pending:
            self.finish()

    def finish(self) -> None:
        self.agent.running -= 1
        took = (now()[0] - self.clocks[0]) // 1000
        self.agent.reading(self.source, self.phase, b"".join(self.parts), self.clocks, took, self.status, self.note)
