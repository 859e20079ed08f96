"""The agent's one loop: orders in, frames out, children in between, and the beat."""

import os
import select
import sys
import time
import zlib

from rollbook.agent.children import Child, Loop, Reading, Walk
from rollbook.agent.reading import Source, Tree
from rollbook.agent.wire import RING, VERSION, Out, lines_of, now, slurp

TYPE_CHECKING = False  # typing itself is too dear to import on every host
if TYPE_CHECKING:
    from rollbook.agent.wire import Clocks

QUIET = 5.0  # seconds of silence after which a beat is sent
RUNNING = 4  # sources with programs read side by side
KEY_BEATS = 60  # after so many beats the deflate streams start anew, so that any minute decodes alone


class Agent:
    """One loop over stdin, stdout and the children's pipes. `about` is what a launcher said of its agents."""

    def __init__(self, out: Out, orders: bytes, about: "list[tuple[str, object]]") -> None:
        *self.lines, self.orders = orders.split(b"\n")
        self.out, self.about = out, about
        self.launcher = os.getppid() if about else 0
        self.hold, self.called = "", False
        self.sources: "list[Source]" = []
        self.children: "list[Child]" = []
        self.loops: "list[Child]" = []
        self.waiting: "list[tuple[Source, str]]" = []
        self.phases: "list[str]" = []
        self.dying: "list[int]" = []
        self.running = self.interval = self.offset = self.next = 0
        self.beats = self.late = self.missed = self.thinned = 0
        self.ending = False

    def hello(self) -> None:
        uname = os.uname()
        facts = [
            ("agent", VERSION),
            ("kind", "python"),
            ("python", "%d.%d.%d" % sys.version_info[:3]),
            ("pid", os.getpid()),
            ("uid", os.getuid()),
            ("hostname", uname.nodename),
            ("release", uname.release),
            ("machine", uname.machine),
            ("machine_id", slurp("/etc/machine-id")),
            ("boot_id", slurp("/proc/sys/kernel/random/boot_id")),
            ("hz", os.sysconf("SC_CLK_TCK")),
        ] + self.about
        self.out.frame(b"H", lines_of(facts))

    def goodbye(self) -> None:
        if self.loops:  # they were killed a moment ago, and their cost is known when they are gone
            time.sleep(0.02)
        self.dying += [loop.pid for loop in self.loops]
        stuck = len([pid for pid in self.dying if os.waitpid(pid, os.WNOHANG)[0] == 0])
        peak = [line.split()[1] for line in slurp("/proc/self/status").splitlines() if line.startswith("VmHWM")]
        facts = [
            ("cpu", "%.4f" % sum(os.times()[:4])),
            ("peak_kib", peak[0] if peak else ""),
            ("sent", self.out.sent),
            ("samples", self.beats),
            ("late", self.late),
            ("missed", self.missed),
            ("thinned", self.thinned),
            ("stuck", stuck),
        ]
        self.out.frame(b"E", lines_of(facts))

    def reading(
        self, source: "Source", phase: str, pages: bytes, clocks: "Clocks", took: int, status: str, note: str = ""
    ) -> None:
        head = "%s %s %s %d %s\n" % (source.id, phase, status, took, note.replace("\n", " "))
        payload = head.encode("utf-8", "surrogateescape") + pages
        # A small window is made in a fraction of the time that the default one takes, and packs text as well.
        packer = zlib.compressobj(6, zlib.DEFLATED, 13, 6)
        small = packer.compress(payload) + packer.flush()
        if len(small) < len(payload):
            self.out.frame(b"Z", small, clocks)
        else:
            self.out.frame(b"R", payload, clocks)

    def obey(self, line: str) -> None:
        word, *rest = line.split("\t")
        if word == "source":
            self.sources.append(Source(*rest))
        elif word in ("read", "link", "run", "each", "space", "env", "loop"):
            self.sources[-1].asks.append([word] + rest)
        elif word == "go":
            self.go(rest[0])
        elif word == "ping":
            self.out.frame(b"P", rest[0].encode())
        elif word == "sample":
            self.interval = int(rest[0])
            os.nice(5)
            self.schedule()
            for source in self.sources:
                for ask in source.asks:
                    if ask[0] == "loop":
                        Loop(self, source, [word.replace("{ms}", str(self.interval // 1000000)) for word in ask[1:]])
        elif word == "clock":
            self.offset = int(rest[0])
            self.schedule()
        elif word == "mark":
            self.take()
        elif word in ("then", "wait"):
            self.hold = word
        elif word == "stop":
            self.ending = True

    def go(self, phase: str) -> None:
        """Read all sources once: plain files first, in one child; programs after them, a few at a time."""
        plain = [source for source in self.sources if not source.does("run", "each", "space")]
        self.waiting += [(source, phase) for source in self.sources if source not in plain]

        def done(source: "Source", status: str, pages: bytes, clocks: "Clocks", took: int) -> None:
            self.reading(source, phase, pages, clocks, took, status)

        if plain:
            tree = Tree()
            seconds = lambda source: source.seconds  # noqa: E731
            Walk(self, plain, lambda source: source.pages(tree), seconds, done)  # type: ignore[arg-type,attr-defined]
        self.phases.append(phase)

    def step(self) -> None:
        """Start what waits, and say so when a phase is done."""
        while self.waiting and self.running < RUNNING:
            self.running += 1
            Reading(self, *self.waiting.pop(0))
        if self.phases and not self.waiting and not self.children:
            self.out.frame(b"D", self.phases.pop(0).encode())

    def schedule(self) -> None:
        """The next beat: a multiple of the interval on the collector's clock, in this host's wall time."""
        if self.interval:
            wall = now()[1] + self.offset
            self.next = (wall // self.interval + 1) * self.interval - self.offset

    def beat(self) -> None:
        behind = now()[1] - self.next
        self.missed += max(0, behind // self.interval)
        self.late += behind > self.interval // 10
        # The deflate streams need every frame: a full queue is met by taking fewer samples, never by dropping.
        step = 1 << (4 * len(self.out.waiting) // RING)
        if step > 8 or (self.next + self.offset) // self.interval % step:
            self.thinned += 1
            self.out.frame(b"G", b"thinned=%d\n" % self.thinned)
        else:
            self.take()
        self.schedule()

    def take(self) -> None:
        clocks, key = now(), self.beats % KEY_BEATS == 0
        body, began = bytearray(), time.monotonic()
        for source in self.sources:
            if source.every and self.beats % source.every == 0:
                start = time.monotonic()
                flags, data = source.sample(key)
                if flags & 4:
                    continue
                took = int((time.monotonic() - start) * 1e6)
                for value in (int(source.id), flags, int((start - began) * 1e6), took, len(data)):
                    while value > 127:
                        body.append(value & 127 | 128)
                        value >>= 7
                    body.append(value)
                body += data
        self.beats += 1
        self.out.frame(b"S", bytes(body), clocks)

    def held(self) -> bool:
        """Whether the next order has to wait."""
        return bool(self.phases) if self.hold == "then" else self.hold == "wait" and not self.called

    def seconds_left(self) -> float:
        """Until something is due."""
        due = [self.out.last + QUIET] + [child.deadline for child in self.children]
        if self.launcher:
            due.append(time.monotonic() + 0.9)
            if self.out.waiting and self.out.pace:
                due.append(self.out.due)
        left = min(due) - time.monotonic()
        if self.interval:
            left = min(left, (self.next - now()[1]) / 1e9)
            if left > 2 * self.interval / 1e9 + QUIET:  # the clock was set back
                self.schedule()
        return max(0.0, left)

    def run(self) -> None:
        self.hello()
        while True:
            while self.lines and not self.held():
                self.hold = ""
                self.obey(self.lines.pop(0).decode("utf-8", "surrogateescape"))
            self.step()
            if self.ending:
                self.end()
            if self.hold and not self.held():
                continue
            if self.launcher and os.getppid() != self.launcher:
                self.end(said=False)
            self.wait()
            moment = time.monotonic()
            for child in list(self.children):
                if child in self.children and moment >= child.deadline:
                    child.end(timed_out=True)
            if self.interval and now()[1] >= self.next:
                self.beat()
            if time.monotonic() - self.out.last >= QUIET:
                self.out.frame(b"B")

    def wait(self) -> None:
        """Sleep until something is due or comes. select(2) wakes to the microsecond, poll(2) only to the next one."""
        self.out.flush()
        orders = [] if self.out.pace else [0]
        # A slow collector must not make us hold a host's output in memory.
        watched = self.loops + (self.children if len(self.out.waiting) < RING else [])
        pipes = [fd for child in watched for fd in child.fds]
        due = [self.out.fd] if self.out.waiting and time.monotonic() >= self.out.due else []
        readable, writable, _ = select.select(orders + pipes, due, [], self.seconds_left())
        if writable:
            self.out.flush()
        for fd in readable:
            if fd == 0:
                self.hear()
            for child in watched:
                if fd in child.fds:
                    child.readable(fd)

    def hear(self) -> None:
        """Take orders; their end is ours."""
        try:
            piece = os.read(0, 1 << 16)
        except OSError:  # a connection that broke
            piece = b""
        if not piece:
            self.end(said=False)
        *lines, self.orders = (self.orders + piece).split(b"\n")
        self.lines += lines

    def end(self, said: bool = True) -> None:
        """End within a second, whatever children or the collector do; lines that leave at a pace get their time."""
        for child in self.children + self.loops:
            child.kill()
        if said:
            self.out.waiting += self.out.kept
            self.goodbye()
            until = time.monotonic() + (60 if self.out.pace else 1)
            while self.out.waiting and time.monotonic() < until:
                select.select([], [self.out.fd], [], 0.1)
                time.sleep(max(0.0, self.out.due - time.monotonic()))
                self.out.flush()
        os._exit(0)
