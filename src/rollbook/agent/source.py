"""A source of the plan: how it is read once and on every beat, and for how long it is paused after a failure."""

import os
import time
import zlib

from rollbook.agent.reading import (
    STEP,
    Tree,
    environment,
    escape_path,
    failed_page,
    page,
    read_file,
    read_link,
    truncated_page,
)
from rollbook.agent.redaction import mask_file
from rollbook.agent.wire import shortages

TYPE_CHECKING = False  # importing typing is too expensive on every host
if TYPE_CHECKING:
    from collections.abc import Iterator

    from rollbook.agent.sample_children import Loop

# Paths that the kernel answers from memory without blocking: the agent reads them itself on every beat.
MEMORY = ("/proc/", "{own}/", "{cgroup}/")
LONGEST_PAUSE = 60.0  # seconds after a failure
MAX_OPEN = 512  # a file with a higher descriptor is closed after each sample: select(2) is limited to 1024
RESERVED = 16  # descriptors for everything else


def max_open() -> int:
    """The highest descriptor of a file that stays open between samples."""
    limit = os.sysconf("SC_OPEN_MAX")
    return min(MAX_OPEN, limit - RESERVED) if limit >= 0 else MAX_OPEN


class Pause:
    """The pause after a failure: longer each time, and at least until the failed child has ended.

    So a source that is stuck in the kernel has one child there, not one for every attempt.
    """

    def __init__(self) -> None:
        self.seconds, self.until, self.pid = 1.0, 0.0, 0

    def begin(self, pid: int) -> None:
        self.until, self.pid = time.monotonic() + self.seconds, pid
        self.seconds = min(2 * self.seconds, LONGEST_PAUSE)

    def over(self, dying: "list[int]") -> bool:
        if self.pid in dying and os.waitpid(self.pid, os.WNOHANG)[0]:
            dying.remove(self.pid)
        return self.pid not in dying and time.monotonic() >= self.until


class Source:
    """One source of the plan, and its state while it is sampled."""

    def __init__(self, ident: str, every: str, limit: str, milliseconds: str) -> None:
        self.id, self.every, self.limit, self.seconds = ident, int(every), int(limit), int(milliseconds) / 1000
        self.asks: "list[list[str]]" = []
        self.files: "dict[str, int | None]" = {}
        self.names: "dict[str, bytes]" = {}
        self.loops: "list[Loop]" = []
        self.pause = Pause()
        self.before = b""
        self.max_open = MAX_OPEN
        self.restart()

    def restart(self) -> None:
        """Start a new deflate stream with the next sample, and search for new files.

        `may_block` means that a driver or a file system provides its files, `empty` that it has no files.
        """
        self.stream: "zlib._Compress | None" = None
        self.search, self.empty = True, False
        others = [ask for ask in self.asks if ask[0] == "read" and not ask[1].startswith(MEMORY)]
        self.may_block = bool(others) and not self.does("loop")

    def does(self, *ops: str) -> bool:
        return any(ask[0] in ops for ask in self.asks)

    def same_pages(self, other: "Source") -> bool:
        """Whether both give the same pages at the same beats: two tables may be made from one file."""
        return (self.asks, self.every, self.limit) == (other.asks, other.every, other.limit)

    def paths(self, op: str, tree: "Tree") -> "Iterator[tuple[str, bool]]":
        """The paths to read, wildcards expanded, each with whether it was named and is reported when absent."""
        for ask in self.asks:
            if ask[0] == op:
                named, paths = tree.matches(ask[1])
                for path in paths:
                    yield path, named

    def pages(self, tree: "Tree") -> bytes:
        """All pages of files, links and environment."""
        pages, left = [], self.limit
        del shortages[:]
        for path, named in self.paths("read", tree):
            data = read_file(path, left) if left > 0 else page(path, "truncated")
            if named or not data.startswith(b"absent"):
                pages.append(data)
                left -= len(data) - data.index(b"\n") - 1  # the names of pages are not counted
        links = [(read_link(path), named) for path, named in self.paths("link", tree)]
        pages += [data for data, named in links if named or not data.startswith(b"absent")]
        pages += [page("environment", "ok", environment(ask[1:])) for ask in self.asks if ask[0] == "env"]
        return b"".join(pages) + self.shortage()

    def shortage(self) -> bytes:
        """A failed page with the reason if a directory could not be listed for lack of resources."""
        return self.failure("failed", shortages[0]) if shortages else b""

    def sample(self) -> bytes:
        """The pages of a sample; empty where there is nothing to read. Descriptors stay open."""
        del shortages[:]
        if self.search:
            self.search = False
            for path, _ in self.paths("read", Tree()):
                if path not in self.files and os.path.exists(path):
                    self.files[path], self.names[path] = None, escape_path(path)
        pages, left = [loop.page() for loop in self.loops], self.limit  # of each program, and of all files together
        for path, fd in self.files.items():
            try:
                if fd is None:
                    fd = self.files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                data = piece = os.pread(fd, STEP, 0)
                while piece and len(data) < left:
                    piece = os.pread(fd, STEP, len(data))
                    data += piece
                whole = len(data) < left
                data = mask_file(path, data)
                if whole:
                    pages += (b"ok %d %s\n" % (len(data), self.names[path]), data)
                else:
                    pages.append(truncated_page(path, data[:left]))
                left = max(0, left - len(data))
                if fd > self.max_open:
                    os.close(fd)
                    self.files[path] = None
            except OSError as error:
                if fd is not None:
                    os.close(fd)
                self.files[path] = None
                pages.append(failed_page(path, error))
        self.search = self.search or bool(shortages)
        return b"".join(pages) + self.shortage()

    def failure(self, status: str, reason: bytes) -> bytes:
        """A page that replaces those that could not be read."""
        return page(next((ask[1] for ask in self.asks if ask[0] in ("read", "link", "env")), "-"), status, reason)

    def compress(self, body: bytes) -> "tuple[int, bytes]":
        """Flags (1: a new stream starts, 2: unchanged) and the deflated pages of a sample."""
        fresh = not self.stream
        if not self.stream:
            # The window must hold the previous sample; a small one stays in the CPU's cache between beats. Fixed codes
            # (Z_FIXED) and a short search: code tables for each sample and a longer search cost more than they save.
            small = len(body) < 6000
            self.stream = zlib.compressobj(4, zlib.DEFLATED, -13 if small else -15, 5 if small else 8, 4)
        elif body == self.before:
            return 2, b""
        self.before = body
        # A sync flush always ends in 00 00 ff ff: the collector appends it.
        return int(fresh), (self.stream.compress(body) + self.stream.flush(zlib.Z_SYNC_FLUSH))[:-4]
