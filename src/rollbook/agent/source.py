"""A source of the plan: how it is read once and on every beat, and what is left alone for a while."""

import os
import time
import zlib

from rollbook.agent.reading import STEP, Tree, cut, environment, failed, heading, page, read_file, read_link

TYPE_CHECKING = False  # typing itself is too dear to import on every host
if TYPE_CHECKING:
    from collections.abc import Iterator

    from rollbook.agent.steady import Loop

# What the kernel answers out of its own memory, and we therefore read ourselves on every beat.
MEMORY = ("/proc/", "{own}/", "{cgroup}/")
LONGEST = 60.0  # seconds for which what failed is left alone
OPEN = 512  # a file with a higher descriptor is closed after each sample: select(2) ends at 1024


class Pause:
    """For how long what failed is left alone: longer each time, and until its child is gone.

    So one that is stuck in the kernel has one child there, not one for each try.
    """

    def __init__(self) -> None:
        self.seconds, self.until, self.pid = 1.0, 0.0, 0

    def begin(self, pid: int) -> None:
        self.until, self.pid = time.monotonic() + self.seconds, pid
        self.seconds = min(2 * self.seconds, LONGEST)

    def over(self, dying: "list[int]") -> bool:
        if self.pid in dying and os.waitpid(self.pid, os.WNOHANG)[0]:
            dying.remove(self.pid)
        return self.pid not in dying and time.monotonic() >= self.until


class Source:
    """One source of the plan, and what sampling it needs to remember."""

    def __init__(self, ident: str, every: str, limit: str, milliseconds: str) -> None:
        self.id, self.every, self.limit, self.seconds = ident, int(every), int(limit), int(milliseconds) / 1000
        self.asks: "list[list[str]]" = []
        self.files: "dict[str, int | None]" = {}
        self.names: "dict[str, bytes]" = {}
        self.loops: "list[Loop]" = []
        self.pause = Pause()
        self.before = b""
        self.renew()

    def renew(self) -> None:
        """Begin a deflate stream at the next sample, and look for files that appeared.

        `apart` says that its files ask a driver or a file system, which may block, and `empty` that there are none.
        """
        self.stream: "zlib._Compress | None" = None
        self.look, self.empty = True, False
        asks_others = [ask for ask in self.asks if ask[0] == "read" and not ask[1].startswith(MEMORY)]
        self.apart = bool(asks_others) and not self.does("loop")

    def does(self, *ops: str) -> bool:
        return any(ask[0] in ops for ask in self.asks)

    def like(self, other: "Source") -> bool:
        """Whether it gives the same pages at the same beats: two tables may be made of one file."""
        return (self.asks, self.every, self.limit) == (other.asks, other.every, other.limit)

    def paths(self, op: str, tree: "Tree") -> "Iterator[tuple[str, bool]]":
        """The paths asked for, wildcards filled in, each with whether its absence is worth a word."""
        for ask in self.asks:
            if ask[0] == op:
                named, paths = tree.matches(ask[1])
                for path in paths:
                    yield path, named

    def pages(self, tree: "Tree") -> bytes:
        """All pages that are files, links or environment."""
        pages, left = [], self.limit
        for path, named in self.paths("read", tree):
            data = read_file(path, left) if left > 0 else page(path, "truncated")
            if named or not data.startswith(b"absent"):
                pages.append(data)
                left -= len(data) - data.index(b"\n") - 1  # the names of pages are not counted
        links = [(read_link(path), named) for path, named in self.paths("link", tree)]
        pages += [data for data, named in links if named or not data.startswith(b"absent")]
        pages += [page("environment", "ok", environment(ask[1:])) for ask in self.asks if ask[0] == "env"]
        return b"".join(pages)

    def text(self) -> bytes:
        """The pages of a sample; none where nothing is there. Descriptors stay open."""
        if self.look:
            self.look = False
            for path, _ in self.paths("read", Tree()):
                if path not in self.files and os.path.exists(path):
                    self.files[path], self.names[path] = None, heading(path)
        pages = [loop.page() for loop in self.loops]
        for path, fd in self.files.items():
            try:
                if fd is None:
                    fd = self.files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                data = piece = os.pread(fd, STEP, 0)
                while piece and len(data) < self.limit:
                    piece = os.pread(fd, STEP, len(data))
                    data += piece
                if len(data) < self.limit:
                    pages += (b"ok %d %s\n" % (len(data), self.names[path]), data)
                else:
                    pages.append(cut(path, data[: self.limit]))
                if fd > OPEN:
                    os.close(fd)
                    self.files[path] = None
            except OSError as error:
                if fd is not None:
                    os.close(fd)
                self.files[path] = None
                pages.append(page(path, failed(error)))
        return b"".join(pages)

    def lost(self, status: str) -> bytes:
        """A page in place of those that its child did not give."""
        return page(next(ask[1] for ask in self.asks if ask[0] == "read"), status)

    def packed(self, body: bytes) -> "tuple[int, bytes]":
        """The pages of a sample deflated, and flags: 1 the stream starts anew, 2 nothing changed."""
        fresh = not self.stream
        if not self.stream:
            # The window must hold the sample before this one; a small one stays in the CPU's cache between beats. Codes
            # are the fixed ones (Z_FIXED), and the search is short: tables for each sample, and a search for what would
            # be a little smaller yet, cost more than they save.
            small = len(body) < 6000
            self.stream = zlib.compressobj(4, zlib.DEFLATED, -13 if small else -15, 5 if small else 8, 4)
        elif body == self.before:
            return 2, b""
        self.before = body
        # A sync flush always ends in 00 00 ff ff: the collector puts it back.
        return int(fresh), (self.stream.compress(body) + self.stream.flush(zlib.Z_SYNC_FLUSH))[:-4]
