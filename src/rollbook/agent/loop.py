"""The agent's one loop: orders in, frames out, children in between, and the beat."""

import os
import select
import sys
import time
import zlib

from rollbook.agent.children import Child, blocked
from rollbook.agent.once import Plain, Reading, Walk
from rollbook.agent.source import Source
from rollbook.agent.steady import Loop, Reader
from rollbook.agent.wire import RING, VERSION, Out, lines_of, now, slurp

TYPE_CHECKING = False  # typing itself is too dear to import on every host
if TYPE_CHECKING:
    from rollbook.agent.once import Mount
    from rollbook.agent.wire import Clocks

QUIET = 5.0  # seconds of silence after which a beat is sent
RUNNING = 4  # sources with programs read side by side
LEAVING = 1.0  # seconds in which what was killed is gone; a driver that gives a GPU back takes a third of one
KEY_BEATS = 60  # after so many beats the deflate streams start anew, so that any minute decodes alone
SAME = 4, b""  # flags and data of a source whose pages are those of the one before it in the sample
SELDOM = 10**10  # nanoseconds; no source is sampled less often if beats allow, or short runs would have no rates of it


class Beat:
    """A sample on its way, entries of sources one after the other; it waits for those that are `missing`."""

    def __init__(self) -> None:
        self.clocks, self.began, self.body, self.missing = now(), time.monotonic(), bytearray(), 0

    def add(self, source: "Source", packed: "tuple[int, bytes]", start: float, took: int) -> None:
        """Five numbers in seven bits a byte, the least first, and the deflated pages."""
        flags, data = packed
        for value in (int(source.id), flags, int((start - self.began) * 1e6), took, len(data)):
            while value > 127:
                self.body.append(value & 127 | 128)
                value >>= 7
            self.body.append(value)
        self.body += data


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
        self.reader: "Reader | None" = None
        self.held: "list[Beat]" = []
        self.waiting: "list[Reading]" = []
        self.phases: "list[str]" = []
        self.dying: "list[int]" = []
        self.running = self.interval = self.offset = self.next = 0
        self.beats = self.late = self.missed = self.thinned = 0
        self.gap = False
        self.ending = 0.0

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
        stuck = self.stuck()  # first, for what children cost is known when they are gone
        peak = [line.split()[1] for line in slurp("/proc/self/status").splitlines() if line.startswith("VmHWM")]
        facts = [
            ("cpu", "%.4f" % (time.process_time() + sum(os.times()[2:4]))),  # of children no clock is finer
            ("peak_kib", peak[0] if peak else ""),
            ("sent", self.out.sent),
            ("samples", self.beats),
            ("late", self.late),
            ("missed", self.missed),
            ("thinned", self.thinned),
            ("stuck", stuck),
        ]
        self.out.frame(b"E", lines_of(facts))

    def stuck(self) -> int:
        """How many of the killed children are stuck in the kernel; the others are given a moment to leave."""
        left = self.dying + [loop.pid for loop in self.loops if loop.pid]
        until = time.monotonic() + LEAVING
        while True:
            left = [pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0]
            if not left or time.monotonic() >= until:
                return len([pid for pid in left if blocked(pid)])
            time.sleep(0.005)

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
                source.every = min(source.every, max(1, SELDOM // self.interval))
                for ask in source.asks:
                    if ask[0] == "loop":
                        Loop(self, source, [word.replace("{ms}", str(self.interval // 1000000)) for word in ask[1:]])
        elif word == "clock":
            self.correct(int(rest[0]))
        elif word == "mark":
            self.take(everything=True)
        elif word in ("then", "wait"):
            self.hold = word
        elif word == "stop":
            self.ending = time.monotonic() + 0.5

    def go(self, phase: str) -> None:
        """Read all sources once: files first, then mounts, in one child; programs a few at a time."""
        plain = [source for source in self.sources if not source.does("run", "each", "space")]
        readings = [Reading(self, source, phase) for source in self.sources if source not in plain]
        items: "list[Plain | Mount]" = [Plain(self, source, phase) for source in plain]
        for reading in readings:
            items += reading.files
        for reading in readings:
            items += reading.mounts
        if items:
            Walk(self, items)
        self.waiting += readings
        self.phases.append(phase)

    def step(self) -> None:
        """Start what waits, and say so when a phase is done."""
        while self.waiting and self.running < RUNNING:
            self.running += 1
            self.waiting.pop(0).begin()
        while self.phases and not self.waiting and not self.children:
            self.out.frame(b"D", self.phases.pop(0).encode())

    def schedule(self) -> None:
        """The next beat: a multiple of the interval on the collector's clock, in this host's wall time."""
        if self.interval:
            wall = now()[1] + self.offset
            self.next = (wall // self.interval + 1) * self.interval - self.offset

    def correct(self, offset: int) -> None:
        """Know the collector's clock better; the beat that is planned moves with it.

        One that is near would else come twice or not at all. Where the clock was set, another beat is planned.
        """
        self.next, self.offset = self.next + self.offset - offset, offset
        if abs(self.next - now()[1] - self.interval // 2) > self.interval:
            self.schedule()

    def beat(self) -> None:
        planned = self.next
        self.late += now()[1] - planned > self.interval // 10
        # The deflate streams need every frame: a full queue is met by taking fewer samples, never by dropping.
        step = 1 << (4 * len(self.out.waiting) // RING)
        if step > 8 or (self.next + self.offset) // self.interval % step:
            if not self.gap:  # the queue is full: one word for all that are left out
                self.out.frame(b"G")
            self.thinned, self.gap = self.thinned + 1, True
        else:
            self.take()
        self.schedule()
        self.missed += (self.next - planned) // self.interval - 1  # slept through, or passed while sources were read

    def take(self, everything: bool = False) -> None:
        """Sample the sources whose turn it is, or all; the sample leaves when those that may block have answered."""
        # Not all hosts at the same beat: together they would send the most at once.
        if not self.beats or (self.beats + os.getpid()) % KEY_BEATS == 0:
            for source in self.sources:
                source.renew()
        beat, apart, before, start, took = Beat(), [], None, 0.0, 0
        for source in self.sources:
            if source.every and (everything or self.beats % source.every == 0):
                if source.apart:
                    apart += [] if source.empty else [source]
                    continue
                if before and source.like(before):
                    beat.add(source, SAME, start, took)
                    continue
                start = time.monotonic()
                body = source.text()
                took = int((time.monotonic() - start) * 1e6)
                before = source if body else None
                if body:
                    beat.add(source, source.packed(body), start, took)
        self.beats, self.gap = self.beats + 1, False
        self.held.append(beat)
        if apart and not (self.reader and self.reader.asked):  # it may still be busy with an earlier beat
            beat.missing = len(apart)
            self.ask([(source, beat) for source in apart])
        self.release()

    def ask(self, asked: "list[tuple[Source, Beat]]") -> None:
        """Have sources read by the child that is there for it, except those that are left alone for a while."""
        ready = [pair for pair in asked if pair[0].pause.over(self.dying)]
        status = "timed-out"
        try:
            if ready:
                (self.reader or Reader(self)).ask(ready)
        except OSError:  # no descriptor is left for its pipe
            ready, status = [], "failed"
        for source, beat in asked:
            if (source, beat) not in ready:
                self.fill(beat, source, source.lost(status), time.monotonic(), 0)

    def fill(self, beat: Beat, source: "Source", body: bytes, start: float, took: int) -> None:
        """A source that was asked for has answered, or was given up."""
        if body:
            beat.add(source, source.packed(body), start, took)
        source.empty = not body
        beat.missing -= 1
        self.release()

    def release(self, whole: bool = True) -> None:
        """Send the samples that are whole, in their order; or all."""
        while self.held and not (whole and self.held[0].missing):
            beat = self.held.pop(0)
            self.out.frame(b"S", bytes(beat.body), beat.clocks)

    def waits(self) -> bool:
        """Whether the next order has to wait."""
        return bool(self.phases) if self.hold == "then" else self.hold == "wait" and not self.called

    def seconds_left(self) -> float:
        """Until something is due."""
        due = [self.out.last + QUIET] + [child.deadline for child in self.children + self.loops]
        if self.ending:
            due.append(self.ending)
        if self.launcher:
            due.append(time.monotonic() + 0.9)
            if self.out.waiting and self.out.pace:
                due.append(self.out.due)
        left = min(due) - time.monotonic()
        if self.interval:
            ahead = self.next - now()[1]
            if ahead > 2 * self.interval:  # the clock was set back
                self.schedule()
                ahead = 0
            left = min(left, ahead / 1e9)
        return max(0.0, left)

    def run(self) -> None:
        self.hello()
        while True:
            while self.lines and not self.waits():
                self.hold = ""
                self.obey(self.lines.pop(0).decode("utf-8", "surrogateescape"))
            self.step()
            if self.ending and (not self.held or time.monotonic() >= self.ending):
                self.end()
            if self.lines and self.hold and not self.waits():
                continue
            if self.launcher and os.getppid() != self.launcher:
                self.end(said=False)
            self.wait()
            moment = time.monotonic()
            for child in self.children + self.loops:
                if moment >= child.deadline and child in child.home:
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
        began, full = time.monotonic(), len(self.out.waiting) >= RING
        watched = self.loops + ([] if full else self.children)
        pipes = [fd for child in watched for fd in child.fds]
        due = [self.out.fd] if self.out.waiting and time.monotonic() >= self.out.due else []
        readable, writable, _ = select.select(orders + pipes, due, [], self.seconds_left())
        for child in self.children if full else []:  # nobody listened to them: that is not their fault
            child.deadline += time.monotonic() - began
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
        """End within two seconds, whatever children or the collector do; lines that leave at a pace get their time."""
        for child in self.children + self.loops:
            child.kill()
        if said:
            self.release(whole=False)
            self.out.waiting += self.out.kept
            self.goodbye()
            until = time.monotonic() + (60 if self.out.pace else 1)
            while self.out.waiting and time.monotonic() < until:
                select.select([], [self.out.fd], [], 0.1)
                time.sleep(max(0.0, self.out.due - time.monotonic()))
                self.out.flush()
        os._exit(0)
