"""The agent's event loop: it takes orders, sends frames, manages children and keeps the beat."""

import os
import select
import sys
import time
import zlib

from rollbook.agent.children import Child, is_stuck
from rollbook.agent.command import Command
from rollbook.agent.fact_children import Plain, Reading, Walk
from rollbook.agent.sample_children import Loop, Reader
from rollbook.agent.source import Source, max_open
from rollbook.agent.wire import QUEUE_LIMIT, SHORTAGES, VERSION, Out, lines_of, now, slurp, unpack

TYPE_CHECKING = False  # importing typing is too expensive on every host
if TYPE_CHECKING:
    from rollbook.agent.evidence import Collection
    from rollbook.agent.fact_children import Mount
    from rollbook.agent.secure import Seal
    from rollbook.agent.wire import Clocks

QUIET = 5.0  # seconds of silence after which a keep-alive frame is sent
RUNNING = 4  # sources with programs that are read in parallel
LEAVING = 1.0  # seconds that killed children get to end; a driver that releases a GPU takes 0.3 s
KEY_BEATS = 60  # beats between key frames, in which all deflate streams restart
ONE_WAY_KEY_BEATS = 5  # the same where the collector cannot send orders, and so cannot request one after a loss
SAME = 4, b""  # flags and data of a source with the same pages as the previous one in the sample
SELDOM = 10**10  # nanoseconds; longest time between two samples of a source, so that short runs have its rates too


class Beat:
    """A sample being taken: the entries of its sources; it is sent when none is `missing`."""

    def __init__(self) -> None:
        self.clocks, self.body, self.missing = now(), bytearray(), 0

    def add(self, source: "Source", content: "tuple[int, bytes]", start: float, took: int) -> None:
        """Append an entry: five LEB128 numbers and the deflated pages."""
        flags, data = content
        for value in (int(source.id), flags, int(start * 1e6) - self.clocks[0] // 1000, took, len(data)):
            while value > 127:
                self.body.append(value & 127 | 128)
                value >>= 7
            self.body.append(value)
        self.body += data


class Agent:
    """The loop over stdin, stdout and the children's pipes. `about` are facts from the launcher for the hello."""

    def __init__(self, out: Out, orders: bytes, about: "list[tuple[str, object]]") -> None:
        *self.lines, self.orders = orders.split(b"\n")
        self.out, self.about = out, about
        self.seal: "Seal | None" = None  # of the orders, if the agent connected back
        self.launcher = os.getppid() if about else 0
        self.hold, self.signalled = "", False
        self.sources: "list[Source]" = []
        self.children: "list[Child]" = []
        self.loops: "list[Child]" = []
        self.reader: "Reader | None" = None
        self.command: "Command | None" = None
        self.held: "list[Beat]" = []
        self.waiting: "list[Reading]" = []
        self.phases: "list[str]" = []
        self.dying: "list[int]" = []
        self.running = self.interval = self.offset = self.next = 0
        self.doubles: "list[int]" = []
        self.beats = self.missed = 0
        self.key_beats = ONE_WAY_KEY_BEATS if out.pace else KEY_BEATS
        self.gap = False
        self.ending = 0.0
        self.extension: "Collection | None" = None

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
        stuck = self.stuck()  # first: the CPU time of children is known when they have ended
        peak = [line.split()[1] for line in slurp("/proc/self/status").splitlines() if line.startswith("VmHWM")]
        facts = [
            ("cpu", "%.4f" % (time.process_time() + sum(os.times()[2:4]))),  # there is no finer clock for children
            ("peak_kib", peak[0] if peak else ""),
            ("sent", self.out.sent),
            ("missed", self.missed),  # tells beats that were not taken from lost frames
            ("stuck", stuck),
        ]
        self.out.frame(b"E", lines_of(facts))

    def stuck(self) -> int:
        """How many of the killed children are stuck in the kernel; the others get a moment to end."""
        left = self.dying + [loop.pid for loop in self.loops if loop.pid]
        until = time.monotonic() + LEAVING
        while True:
            left = [pid for pid in left if os.waitpid(pid, os.WNOHANG)[0] == 0]
            if not left or time.monotonic() >= until:
                return len([pid for pid in left if is_stuck(pid)])
            time.sleep(0.005)

    def reading(
        self, source: "Source", phase: str, pages: bytes, clocks: "Clocks", took: int, status: str, note: str = ""
    ) -> None:
        head = "%s %s %s %d %s\n" % (source.id, phase, status, took, note.replace("\n", " "))
        payload = head.encode("utf-8", "surrogateescape") + pages
        # A small window is allocated in a fraction of the time of the default one and compresses text as well.
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
            self.interval, *self.doubles = map(int, rest)
            # Programs keep their interval: with one that grows, a second costs little and is short enough.
            milliseconds = max(self.interval // 1000000, 1000 if self.doubles else 0)
            os.nice(5)
            self.schedule()
            for source in self.sources:
                source.max_open = max_open()
                self.limit(source)
                for ask in source.asks:
                    if ask[0] == "loop":
                        Loop(self, source, [word.replace("{ms}", str(milliseconds)) for word in ask[1:]])
        elif word == "clock":
            self.correct(int(rest[0]))
        elif word in ("mark", "key"):
            self.take_sample(everything=True, key=word == "key")
        elif word in ("then", "wait"):
            self.hold = word
        elif word == "exec":
            self.command = Command(self, *rest)
            self.phases.append(word)
        elif word == "stop":
            self.ending = time.monotonic() + 0.5
        elif word == "extend":
            exec(unpack(rest[0]), globals())  # noqa: S102 - orders may run any program anyway
            self.extension = globals()["extend"](self)
        elif self.extension:
            self.extension.obey(word, rest)

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
        """Start waiting readings, and report phases that are done."""
        while self.waiting and self.running < RUNNING:
            self.running += 1
            self.waiting.pop(0).begin()
        while self.phases and not self.waiting and not self.children:
            self.out.frame(b"D", self.phases.pop(0).encode())

    def schedule(self) -> None:
        """The next beat: a multiple of the interval on the collector's clock, in this host's wall time."""
        if self.interval:
            wall = now()[1] + self.offset
            while self.doubles and wall >= self.doubles[0]:
                self.interval *= 2
                del self.doubles[0]
                for source in self.sources:
                    self.limit(source)
            self.next = (wall // self.interval + 1) * self.interval - self.offset

    def limit(self, source: "Source") -> None:
        """A source that is not read on every beat is read often enough all the same."""
        source.every = min(source.every, max(1, SELDOM // self.interval))

    def correct(self, offset: int) -> None:
        """Set the offset to the collector's clock and move the planned beat with it.

        Otherwise a beat that is close would come twice or not at all. If the clock was set, plan a new beat.
        """
        self.next, self.offset = self.next + self.offset - offset, offset
        if abs(self.next - now()[1] - self.interval // 2) > self.interval:
            self.schedule()

    def beat(self) -> None:
        planned = self.next
        # The deflate streams need every frame: if the queue is full, take fewer samples, never drop a frame.
        step = 1 << (4 * len(self.out.waiting) // QUEUE_LIMIT)
        if step > 8 or (self.next + self.offset) // self.interval % step:
            if not self.gap:  # one gap frame for all skipped samples: the queue is full
                self.out.frame(b"G")
            self.gap = True
        else:
            self.take_sample()
        self.schedule()
        self.missed += (self.next - planned) // self.interval - 1  # slept through, or passed while sources were read

    def take_sample(self, everything: bool = False, key: bool = False) -> None:
        """Sample the sources that are due, or all; the sample is sent when those that may block have answered."""
        # Key frames are large: hosts send them at different beats.
        if key or not self.beats or (self.beats + os.getpid()) % self.key_beats == 0:
            for source in self.sources:
                source.restart()
        beat, blocking, before, start, took = Beat(), [], None, 0.0, 0
        for source in self.sources:
            if source.every and (everything or self.beats % source.every == 0):
                if source.may_block:
                    blocking += [] if source.empty else [source]
                    continue
                if before and source.same_pages(before):
                    beat.add(source, SAME, start, took)
                    continue
                start = time.monotonic()
                body = source.sample()
                took = int((time.monotonic() - start) * 1e6)
                before = source if body else None
                if body:
                    beat.add(source, source.compress(body), start, took)
        self.beats, self.gap = self.beats + 1, False
        self.held.append(beat)
        if blocking and not (self.reader and self.reader.pending):  # it may still be busy with an earlier beat
            beat.missing = len(blocking)
            self.request([(source, beat) for source in blocking])
        self.release()

    def request(self, pending: "list[tuple[Source, Beat]]") -> None:
        """Let the reader child read sources, except those that are paused after a failure."""
        ready = [pair for pair in pending if pair[0].pause.over(self.dying)]
        status, reason = "timed-out", b""
        try:
            if ready:
                (self.reader or Reader(self)).request(ready)
        except OSError as error:  # no descriptor is left for its pipe
            ready, status, reason = [], "failed", SHORTAGES.get(error.errno or 0, b"")
        for source, beat in pending:
            if (source, beat) not in ready:
                self.fill(beat, source, source.failure(status, reason), time.monotonic(), 0)

    def fill(self, beat: Beat, source: "Source", body: bytes, start: float, took: int) -> None:
        """Add the answer of a source that may block; empty where it has no files."""
        if body:
            beat.add(source, source.compress(body), start, took)
        source.empty = not body
        beat.missing -= 1
        self.release()

    def release(self, incomplete: bool = False) -> None:
        """Send the samples that are complete, in order; or all."""
        while self.held and (incomplete or not self.held[0].missing):
            beat = self.held.pop(0)
            self.out.frame(b"S", bytes(beat.body), beat.clocks)

    def must_wait(self) -> bool:
        """Whether the next order has to wait."""
        return bool(self.phases) if self.hold == "then" else self.hold == "wait" and not self.signalled

    def seconds_left(self) -> float:
        """Seconds until something is due."""
        due = [self.out.last + QUIET] + [child.deadline for child in self.children + self.loops]
        if self.ending:
            due.append(self.ending)
        if self.command:
            due.append(self.command.due)
        if self.launcher:
            due.append(time.monotonic() + 0.9)
        if self.out.waiting and self.out.due:
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
            while self.lines and not self.must_wait():
                self.hold = ""
                self.obey(self.lines.pop(0).decode("utf-8", "surrogateescape"))
            self.step()
            if self.ending and (not self.held or time.monotonic() >= self.ending):
                self.end()
            if self.lines and self.hold and not self.must_wait():
                continue
            if self.launcher and os.getppid() != self.launcher:
                self.end(goodbye=False)
            self.wait()
            moment = time.monotonic()
            for child in self.children + self.loops:
                if moment >= child.deadline and child in child.group:
                    child.end(timed_out=True)
            if self.command and moment >= self.command.due:
                self.command.check()
            if self.interval and now()[1] >= self.next:
                self.beat()
            if time.monotonic() - self.out.last >= QUIET:
                self.out.frame(b"B")

    def wait(self) -> None:
        """Sleep until something is due or arrives. select(2) counts in microseconds, poll(2) in milliseconds."""
        self.out.flush()
        orders = [] if self.out.pace else [0]
        # While the queue is full, output of children must not pile up in memory.
        began, full = time.monotonic(), len(self.out.waiting) >= QUEUE_LIMIT
        watched = self.loops + ([] if full else self.children)
        pipes = [fd for child in watched for fd in child.fds]
        due = [self.out.fd] if self.out.waiting and time.monotonic() >= self.out.due else []
        readable, writable, _ = select.select(orders + pipes, due, [], self.seconds_left())
        for child in self.children if full else []:  # they were not read: this does not count as their time
            child.deadline += time.monotonic() - began
        if writable:
            self.out.flush()
        for fd in readable:
            if fd == 0:
                self.read_orders()
            for child in watched:
                if fd in child.fds:
                    child.readable(fd)

    def read_orders(self) -> None:
        """Read orders from stdin; the agent ends when stdin does."""
        try:
            piece = os.read(0, 1 << 16)
        except OSError:  # the connection broke
            piece = b""
        if not piece:
            self.end(goodbye=False)
        if self.seal:
            piece = self.seal.open(piece)
        *lines, self.orders = (self.orders + piece).split(b"\n")
        self.lines += lines

    def end(self, goodbye: bool = True) -> None:
        """End within two seconds, whatever children or the collector do; paced lines get a minute."""
        for child in self.children + self.loops:
            child.kill()
        if goodbye:
            for source, beat in self.reader.pending if self.reader else ():  # a sample that lacks it says so
                self.fill(beat, source, source.failure("timed-out", b""), time.monotonic(), 0)
            self.release(incomplete=True)
            self.out.waiting += self.out.kept
            self.goodbye()
            until = time.monotonic() + (60 if self.out.pace else 1)
            while self.out.waiting and time.monotonic() < until:
                select.select([], [self.out.fd], [], 0.1)
                time.sleep(max(0.0, self.out.due - time.monotonic()))
                self.out.flush()
        os._exit(0)
