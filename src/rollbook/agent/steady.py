"""Children that stay from beat to beat: programs that run on, and the reader of files that may block."""

import os
import struct
import time

from rollbook.agent.children import Child, become
from rollbook.agent.reading import page
from rollbook.agent.source import LONGEST, Pause, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rollbook.agent.loop import Agent, Beat


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
