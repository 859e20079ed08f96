"""The agent's children: whatever may block is done by them, in process groups of their own, within time limits."""

import os
import struct
import time

from rollbook.agent.reading import (
    LONGEST,
    PATH,
    Pause,
    Source,
    Tree,
    cut,
    elsewhere,
    failed,
    located,
    mounts,
    page,
    read_space,
)
from rollbook.agent.wire import now

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal

    from rollbook.agent.loop import Agent, Beat
    from rollbook.agent.wire import Clocks
else:
    import _signal as signal  # what lies under signal, whose enumerations cost more than all else imported here


def detach() -> None:
    """In a fresh child: own process group, and none of the agent's channels.

    A child stuck in the kernel would otherwise hold the login session open long after the agent is gone.
    """
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


class Child:
    """A process in its own group whose output we read, with a deadline."""

    def __init__(self, agent: "Agent", seconds: float, home: "list[Child]") -> None:
        self.agent, self.deadline, self.home = agent, time.monotonic() + seconds, home
        self.start()

    def start(self) -> None:
        """Begin; also again, when it is over."""
        self.out, self.err, self.pid, self.code = bytearray(), bytearray(), 0, 126
        self.fds: "dict[int, bytearray]" = {}
        self.home.append(self)
        pipes: "list[int]" = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            pid = os.fork()
        except OSError:  # too many processes or files: the loop ends it at once, and it costs itself only
            for fd in pipes:
                os.close(fd)
            self.err += b"no process could be started"
            self.deadline = 0.0
            return
        out_read, out_write, err_read, err_write = pipes
        self.fds, self.pid = {out_read: self.out, err_read: self.err}, pid
        if pid == 0:
            try:
                detach()
                for fd in self.fds:  # or it would wait for itself to read what a killed agent no longer does
                    os.close(fd)
                if self.agent.reader:  # which ends when nobody can ask it any more
                    os.close(self.agent.reader.tell)
                self.work(out_write, err_write)
            finally:
                os._exit(127)
        os.close(out_write)
        os.close(err_write)

    def work(self, out: int, err: int) -> None:
        """What the child does."""

    def progress(self) -> None:
        """More output is there."""

    def finished(self, timed_out: bool) -> None:
        """The child is gone, or given up."""

    def readable(self, fd: int) -> None:
        piece = os.read(fd, 1 << 16)
        if piece:
            self.fds[fd] += piece
            self.progress()
        else:
            self.close(fd)
            if not self.fds:
                self.end()

    def close(self, fd: int) -> None:
        os.close(fd)
        del self.fds[fd]

    def kill(self) -> None:
        try:
            if self.pid:
                os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            pass

    def end(self, timed_out: bool = False) -> None:
        """Take the exit code and kill the group. A child stuck in the kernel is left to its fate, and counted."""
        self.home.remove(self)
        for fd in list(self.fds):
            self.close(fd)
        if not self.pid:
            self.finished(False)
            return
        pid = code = 0
        until = time.monotonic() + 0.2  # its pipes are closed: a healthy child is about to exit by itself
        while not pid and not timed_out and time.monotonic() < until:
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            if not pid:
                time.sleep(0.0005)
        self.code = (code >> 8) or -(code & 127)
        self.kill()
        if not pid:
            self.agent.dying.append(self.pid)
        self.finished(timed_out)


def become(argv: "list[str]", out: int, err: int) -> None:
    """Turn this child into a program of the host; where that fails, stderr says how in one word."""
    os.dup2(out, 1)
    os.dup2(err, 2)
    env = dict(os.environ, PATH=os.environ.get("PATH", "") + PATH, LC_ALL="C", LANG="C")
    try:
        # Not execvpe: it would import a module in every child to look the program up.
        os.execve(located(argv[0], PATH.split(":")[1:] + elsewhere()) or argv[0], argv, env)
    except OSError as error:
        os.write(2, failed(error).encode())


class Program(Child):
    """A program of the host; its output is a page of a reading."""

    def __init__(self, agent: "Agent", reading: "Reading", argv: "list[str]") -> None:
        self.reading, self.argv, self.limit, self.cut = reading, argv, reading.source.limit, False
        Child.__init__(self, agent, reading.source.seconds, agent.children)

    def work(self, out: int, err: int) -> None:
        become(self.argv, out, err)

    def progress(self) -> None:
        del self.err[4096:]
        if len(self.out) > self.limit:
            del self.out[self.limit :]
            self.cut = True
            self.end()

    def finished(self, timed_out: bool) -> None:
        name, said = " ".join(self.argv), self.err.decode("utf-8", "replace").strip()
        if timed_out:
            status = "timed-out"
        elif self.cut:
            status = "truncated"
        elif self.code == 127 and said in ("absent", "denied"):
            status = said
        else:
            status = "ok" if self.out or not self.code else "failed"
        if status == "failed":
            self.reading.note = (name + ": " + (said or "ended with code %d" % self.code))[:500]
        self.reading.add(cut(name, bytes(self.out)) if self.cut else page(name, status, bytes(self.out)), status)


class Loop(Child):
    """A program that runs on and writes now and then; what it wrote since the beat before is a page of a sample.

    One that ends, or says nothing for long, is started anew.
    """

    def __init__(self, agent: "Agent", source: "Source", argv: "list[str]") -> None:
        self.source, self.argv, self.pause = source, argv, Pause()
        Child.__init__(self, agent, float("inf"), agent.loops)
        source.loops.append(self)

    def start(self) -> None:
        self.status, self.latest, self.deadline = "ok", b"", float("inf")
        self.began = self.heard = time.monotonic()
        Child.start(self)

    def work(self, out: int, err: int) -> None:
        become(self.argv, out, err)

    def progress(self) -> None:
        del self.err[4096:]
        if len(self.out) > self.source.limit:  # what is left begins with a whole line
            del self.out[: self.out.find(b"\n", -self.source.limit) + 1 or len(self.out)]

    def page(self) -> bytes:
        """Whole lines only. What a slow program said last is still true for a moment, but never for long."""
        moment, beat = time.monotonic(), self.agent.interval / 1e9
        size = self.out.rfind(b"\n") + 1
        if size:
            self.latest, self.heard = bytes(self.out[:size]), moment
            del self.out[:size]
        silent, status = moment - self.heard, self.status
        if size:  # even if it is gone by now
            status = "ok"
        elif status != "ok" and self.pause.over(self.agent.dying):
            self.start()
        elif status == "ok" and silent > 3 * beat + self.source.seconds:
            self.end(timed_out=True)
            status = self.status
        elif status == "ok" and silent > 2 * beat + 1:
            status = "timed-out"
        return page(" ".join(self.argv), status, self.latest if status == "ok" else b"")

    def finished(self, timed_out: bool) -> None:
        self.status = "timed-out" if timed_out else "failed"
        if time.monotonic() - self.began > LONGEST:
            self.pause = Pause()
        self.pause.begin(self.pid)
        if self.code == 127 and not self.latest + self.out:
            self.source.loops.remove(self)  # there is no such program


class Reader(Child):
    """Reads what may block while the host is sampled; kept from beat to beat, as long as it finds anything.

    It answers source by source. Where one does not answer in time, the child is given up, that source left alone for a
    while, and a fresh child goes on with the next.
    """

    def __init__(self, agent: "Agent") -> None:
        self.orders, self.tell = os.pipe()
        self.asked: "list[tuple[Source, Beat]]" = []
        Child.__init__(self, agent, float("inf"), agent.loops)
        os.close(self.orders)
        agent.reader = self

    def work(self, out: int, err: int) -> None:
        os.close(err)
        os.close(self.tell)
        sources = self.agent.sources
        for source in sources:
            source.files, source.look = {}, True
        while True:
            order = os.read(self.orders, 4096).split()
            for word in order:
                source, began = sources[int(word.strip(b"+"))], time.monotonic()
                source.look = source.look or word.endswith(b"+")
                body = source.text()
                data = struct.pack("=IId", len(body), int((time.monotonic() - began) * 1e6), began) + body
                while data:
                    data = data[os.write(out, data) :]
            if not order or not any(source.files for source in sources):
                os._exit(0)

    def ask(self, asked: "list[tuple[Source, Beat]]") -> None:
        """Have sources read, each for its beat. No more than one such order is under way, so that it fits the pipe."""
        self.asked, words = asked, []
        for source, _ in asked:
            words.append(b"%d%s" % (self.agent.sources.index(source), b"+" if source.look else b""))
            source.look = False
        if self.pid:
            self.deadline = time.monotonic() + asked[0][0].seconds
        try:
            os.write(self.tell, b" ".join(words))
        except OSError:  # it died, which its pipes will tell
            pass

    def progress(self) -> None:
        while len(self.out) >= 16:
            length, took, began = struct.unpack_from("=IId", self.out)
            if len(self.out) < 16 + length:
                return
            source, beat = self.asked.pop(0)
            data = bytes(self.out[16 : 16 + length])
            del self.out[: 16 + length]
            source.pause = Pause()
            self.deadline = time.monotonic() + self.asked[0][0].seconds if self.asked else float("inf")
            self.agent.fill(beat, source, data, began, took)

    def finished(self, timed_out: bool) -> None:
        os.close(self.tell)
        self.agent.reader = None
        if not self.asked:
            return
        (source, beat), *rest = self.asked
        source.pause.begin(self.pid)
        self.agent.fill(beat, source, source.lost("timed-out" if timed_out else "failed"), time.monotonic(), 0)
        if rest:
            self.agent.ask(rest)


class Walk(Child):
    """Read items one after the other in one child; an item that blocks costs itself, not the others."""

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
        # The child hangs or died at its current item: name it, go on with the next in a fresh child.
        since = time.monotonic() - self.deadline + self.items[0].seconds() if self.pid else 0.0
        self.items.pop(0).done("timed-out" if timed_out else "failed", b"", now(), int(since * 1e6))
        while self.items and self.items[0].seconds() <= 0:
            self.items.pop(0).done("timed-out", b"", now(), 0)
        if self.items:
            Walk(self.agent, self.items)


class Plain:
    """A source of files alone, as an item of a walk."""

    def __init__(self, agent: "Agent", source: "Source", phase: str) -> None:
        self.agent, self.source, self.phase = agent, source, phase

    def seconds(self) -> float:
        return self.source.seconds

    def pages(self, tree: Tree) -> bytes:
        return self.source.pages(tree)

    def done(self, status: str, pages: bytes, clocks: "Clocks", took: int) -> None:
        self.agent.reading(self.source, self.phase, pages, clocks, took, status)


class Mount:
    """A mounted file system, as an item of a walk; those of one source share its time."""

    def __init__(self, reading: "Reading", path: str) -> None:
        self.reading, self.path = reading, path

    def seconds(self) -> float:
        return min(2.0, self.reading.left)

    def pages(self, _tree: Tree) -> bytes:
        return read_space(self.path)

    def done(self, status: str, data: bytes, _clocks: "Clocks", took: int) -> None:
        self.reading.left -= took / 1e6
        self.reading.add(data or page(self.path, status), status)


def argvs(ask: "list[str]") -> "list[list[str]]":
    """The programs that an ask wants to be run: one, or one for each path that fits."""
    if ask[0] != "each":
        return [ask[1:]] if ask[0] == "run" else []
    names = [os.path.basename(path) for path in Tree().matches(ask[1])[1] if os.path.exists(path)]
    return [[word.replace("{}", name) for word in ask[2:]] for name in names]


class Reading:
    """A source being read by children; sent when its last page is there. Its `mounts` are for a walk to read."""

    def __init__(self, agent: "Agent", source: "Source", phase: str) -> None:
        self.agent, self.source, self.phase, self.clocks = agent, source, phase, now()
        self.parts, self.status, self.note = [source.pages(Tree())], "-", ""
        programs = [argv for ask in source.asks for argv in argvs(ask)]
        self.left = source.seconds
        self.mounts = [Mount(self, path) for path in mounts()] if source.does("space") else []
        self.pending = len(programs) + len(self.mounts) + 1  # and one until all are begun
        for argv in programs:
            # A child that only finds that there is no such program is too dear.
            if elsewhere() or located(argv[0], PATH.split(":")[1:]):
                Program(agent, self, argv)
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
