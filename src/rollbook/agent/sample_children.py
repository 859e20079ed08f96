"""Children that stay from beat to beat: programs that keep running, and the reader of files that may block."""

import os
import struct
import time

from rollbook.agent.children import UNSTARTED, Child, exec_program
from rollbook.agent.reading import page
from rollbook.agent.source import LONGEST_PAUSE, Pause, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rollbook.agent.loop import Agent, Beat


class Loop(Child):
    """A program that keeps running; what it wrote since the previous beat is a page of the sample.

    A program that ends, or is silent for too long, is restarted.
    """

    def __init__(self, agent: "Agent", source: "Source", argv: "list[str]") -> None:
        self.source, self.argv, self.pause = source, argv, Pause()
        Child.__init__(self, agent, float("inf"), agent.loops)
        source.loops.append(self)

    def start(self) -> None:
        self.status, self.latest, self.deadline = "ok", b"", float("inf")
        self.began = self.wrote = time.monotonic()
        Child.start(self)

    def work(self, out: int, err: int) -> None:
        exec_program(self.argv, out, err)

    def progress(self) -> None:
        del self.err[4096:]
        if len(self.out) > self.source.limit:  # drop the oldest lines; what remains starts with a complete line
            del self.out[: self.out.find(b"\n", -self.source.limit) + 1 or len(self.out)]

    def page(self) -> bytes:
        """Complete lines only. The last output of a slow program stays valid for a moment, then it is timed out."""
        moment, beat = time.monotonic(), self.agent.interval / 1e9
        size = self.out.rfind(b"\n") + 1
        if size:
            self.latest, self.wrote = bytes(self.out[:size]), moment
            del self.out[:size]
        silent, status = moment - self.wrote, self.status
        if size:  # even if it has ended since
            status = "ok"
        elif status != "ok" and self.pause.over(self.agent.dying):
            self.start()
        elif status == "ok" and silent > 3 * beat + self.source.seconds:
            self.end(timed_out=True)
            status = self.status
        elif status == "ok" and silent > 2 * beat + 1:
            status = "timed-out"
        data = self.latest if status == "ok" else self.shortage() if status == "failed" else b""
        return page(" ".join(self.argv), status, data)

    def finished(self, timed_out: bool) -> None:
        self.status = "timed-out" if timed_out else "failed"
        if time.monotonic() - self.began > LONGEST_PAUSE:
            self.pause = Pause()
        self.pause.begin(self.pid)
        if self.code == 127 and self.err == b"absent" and not self.latest + self.out:
            self.source.loops.remove(self)


class Reader(Child):
    """Reads files that may block while the host is sampled; kept from beat to beat as long as it finds any.

    It answers source by source. If one does not answer in time, the child is abandoned, that source is paused, and a
    new child continues with the next source.
    """

    def __init__(self, agent: "Agent") -> None:
        self.orders, self.requests = os.pipe()
        self.pending: "list[tuple[Source, Beat]]" = []
        Child.__init__(self, agent, float("inf"), agent.loops)
        os.close(self.orders)
        agent.reader = self

    def work(self, out: int, err: int) -> None:
        os.close(err)
        os.close(self.requests)
        sources = self.agent.sources
        for source in sources:
            source.files, source.search = {}, True
        while True:
            order = os.read(self.orders, 4096).split()
            for word in order:
                source, began = sources[int(word.strip(b"+"))], time.monotonic()
                source.search = source.search or word.endswith(b"+")
                body = source.sample()
                data = struct.pack("=IId", len(body), int((time.monotonic() - began) * 1e6), began) + body
                while data:
                    data = data[os.write(out, data) :]
            if not order or not any(source.files for source in sources):
                os._exit(0)

    def request(self, pending: "list[tuple[Source, Beat]]") -> None:
        """Read sources, each for its beat. At most one request is in progress, so it fits into the pipe."""
        self.pending, words = pending, []
        for source, _ in pending:
            words.append(b"%d%s" % (self.agent.sources.index(source), b"+" if source.search else b""))
            source.search = False
        if self.pid:
            self.deadline = time.monotonic() + pending[0][0].seconds
        try:
            os.write(self.requests, b" ".join(words))
        except OSError:  # it died; the end of its pipes reports that
            pass

    def progress(self) -> None:
        while len(self.out) >= 16:
            length, took, began = struct.unpack_from("=IId", self.out)
            if len(self.out) < 16 + length:
                return
            source, beat = self.pending.pop(0)
            data = bytes(self.out[16 : 16 + length])
            del self.out[: 16 + length]
            source.pause = Pause()
            self.deadline = time.monotonic() + self.pending[0][0].seconds if self.pending else float("inf")
            self.agent.fill(beat, source, data, began, took)

    def finished(self, timed_out: bool) -> None:
        os.close(self.requests)
        self.agent.reader = None
        if not self.pending:
            return
        (source, beat), *rest = self.pending
        source.pause.begin(self.pid)
        page = source.failure("timed-out" if timed_out else "failed", b"" if self.pid else UNSTARTED)
        self.agent.fill(beat, source, page, time.monotonic(), 0)
        if rest:
            self.agent.request(rest)
