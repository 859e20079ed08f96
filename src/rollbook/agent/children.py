"""The agent's children: whatever may block is done by them, in process groups of their own, within time limits."""

import os
import struct
import time

from rollbook.agent.reading import PATH, Source, Tree, cut, elsewhere, failed, located, mounts, page, read_space
from rollbook.agent.wire import now

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from rollbook.agent.loop import Agent
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
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self.out, self.err, self.code = bytearray(), bytearray(), 0
        self.fds = {out_read: self.out, err_read: self.err}
        self.pid = os.fork()
        if self.pid == 0:
            try:
                detach()
                for fd in self.fds:  # or it would wait for itself to read what a killed agent no longer does
                    os.close(fd)
                self.work(out_write, err_write)
            finally:
                os._exit(127)
        os.close(out_write)
        os.close(err_write)
        home.append(self)

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
            os.killpg(self.pid, signal.SIGKILL)
        except OSError:
            pass

    def end(self, timed_out: bool = False) -> None:
        """Take the exit code and kill the group. A child stuck in the kernel is left to its fate, and counted."""
        self.home.remove(self)
        for fd in list(self.fds):
            self.close(fd)
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
    """A program that runs on and writes now and then; what it wrote since the beat before is a page of a sample."""

    def __init__(self, agent: "Agent", source: "Source", argv: "list[str]") -> None:
        self.source, self.argv, self.status, self.latest = source, argv, "ok", b""
        Child.__init__(self, agent, float("inf"), agent.loops)
        source.loops.append(self)

    def work(self, out: int, err: int) -> None:
        become(self.argv, out, err)

    def progress(self) -> None:
        del self.err[4096:]
        del self.out[: -self.source.limit]

    def page(self) -> bytes:
        """Whole lines only; a program that was slow has nothing new to say, not nothing at all."""
        size = self.out.rfind(b"\n") + 1
        if size:
            self.latest = bytes(self.out[:size])
            del self.out[:size]
        return page(" ".join(self.argv), self.status, self.latest if self.status == "ok" else b"")

    def finished(self, timed_out: bool) -> None:
        self.status = "timed-out" if timed_out else "failed"
        if self.code == 127 and not self.latest:
            self.source.loops.remove(self)  # there is no such program


class Walk(Child):
    """Work on items one after the other in one child; an item that blocks costs itself, not the others."""

    def __init__(
        self,
        agent: "Agent",
        items: "list[object]",
        work: "Callable[[object], bytes]",
        seconds: "Callable[[object], float]",
        done: "Callable[[object, str, bytes, Clocks, int], None]",
        until: float = float("inf"),
    ) -> None:
        self.items, self.one, self.seconds, self.done, self.until = items, work, seconds, done, until
        Child.__init__(self, agent, seconds(items[0]), agent.children)

    def work(self, out: int, err: int) -> None:
        os.close(err)
        for item in self.items:
            clocks = now()
            data = self.one(item)
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
            item = self.items.pop(0)
            data = bytes(self.out[24 : 24 + length])
            del self.out[: 24 + length]
            self.done(item, "-", data, (mono, wall), took)
            if self.items:
                self.deadline = time.monotonic() + self.seconds(self.items[0])

    def finished(self, timed_out: bool) -> None:
        if not self.items:
            return
        # The child hangs or died at its current item: name it, go on with the next in a fresh child.
        since = time.monotonic() - self.deadline + self.seconds(self.items[0])
        self.done(self.items.pop(0), "timed-out" if timed_out else "failed", b"", now(), int(since * 1e6))
        if time.monotonic() > self.until:
            while self.items:
                self.done(self.items.pop(0), "timed-out", b"", now(), 0)
        elif self.items:
            Walk(self.agent, self.items, self.one, self.seconds, self.done, self.until)


def argvs(ask: "list[str]") -> "list[list[str]]":
    """The programs that an ask wants to be run: one, or one for each path that fits."""
    if ask[0] != "each":
        return [ask[1:]] if ask[0] == "run" else []
    names = [os.path.basename(path) for path in Tree().matches(ask[1])[1] if os.path.exists(path)]
    return [[word.replace("{}", name) for word in ask[2:]] for name in names]


class Reading:
    """A source being read by children; sent when its last page is there."""

    def __init__(self, agent: "Agent", source: "Source", phase: str) -> None:
        self.agent, self.source, self.phase, self.clocks = agent, source, phase, now()
        self.parts, self.status, self.note = [source.pages(Tree())], "-", ""
        programs = [argv for ask in source.asks for argv in argvs(ask)]
        places = mounts() if source.does("space") else []
        self.pending = len(programs) + len(places)
        for argv in programs:
            # A child that only finds that there is no such program is too dear.
            if elsewhere() or located(argv[0], PATH.split(":")[1:]):
                Program(agent, self, argv)
            else:
                self.add(page(" ".join(argv), "absent"), "absent")
        if places:
            each = min(2.0, source.seconds)
            until = time.monotonic() + source.seconds
            Walk(agent, places, read_space, lambda _: each, self.mount, until)  # type: ignore[arg-type]
        if not self.pending:
            self.finish()

    def mount(self, path: str, status: str, data: bytes, _clocks: "Clocks", _took: int) -> None:
        self.add(data or page(path, status), status)

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
