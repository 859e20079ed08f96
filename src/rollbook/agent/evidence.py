"""The part of the agent that reads the items of an issue report; it is sent to a host only for that.

It runs in the namespace of the agent's own text, after the order `extend`, and takes these orders:

    never NAME...   patterns of file names that are never read
    item NUMBER MILLISECONDS LIMIT KEEP REDACT DATED FIRST   starts an item; what to read follows, one per line:
        path PATTERN | exclude PATTERN | for PATTERN | command ARGV... | when path PATTERN | when command NAME
    collect MILLISECONDS BYTES SINCE UNTIL SALT   read all items, in order, within the limits of this host

Tabs separate fields; a backslash, tab or newline inside a field is escaped. Every frame is of type I:

    ITEM FILE open SOURCE                       a path, or a command
    ITEM FILE data LENGTH, newline, zlib        the next bytes, redacted
    ITEM FILE log, newline, zlib                what was redacted: lines RULE LINE COUNT MARK
    ITEM FILE end BEFORE AFTER EXIT LENGTH      bytes that are missing before and after (-1: unknown), exit status of
                                                a program or -, bytes that were sent
    ITEM - done STATUS MICROSECONDS NOTE        the item is finished

and `D items` follows the last. Further orders put all this into an archive instead; see `archive.py`. A child per item
reads, redacts and deflates, in a session of its own: a program that hangs is killed with its whole session, a child
that is stuck in the kernel is abandoned, and what was read until then is sent. Nothing is written on the host, except
for an archive.
"""

import fnmatch
import os
import re
import select
import stat
import struct
import time

from rollbook.agent.archive import Archive
from rollbook.agent.children import Child, exec_program, is_stuck
from rollbook.agent.dated import BLOCK, TimeWindow, line_start, position
from rollbook.agent.matching import below
from rollbook.agent.outgoing import BEFORE, Sink, Tail, escaped, quoted, unescaped
from rollbook.agent.patience import BUSY, MOST, Patience, is_busy, is_starved
from rollbook.agent.reading import PATH, find_program, user_directories
from rollbook.agent.wire import slurp

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator

    from rollbook.agent.loop import Agent
else:
    import _signal as signal

PARALLEL = 4  # items at a time
GRACE = 3.0  # seconds after its timeout until a child that does not react is abandoned
MOST_FILES = 1000  # of an item
MOST_MATCHES = 20000  # of a pattern
KERNEL_FILE = 1 << 16  # bytes of one file below /proc or /sys that a wildcard matched
SMALL = 1 << 20
LEAST = 1 << 12  # bytes for which an item is still read
# Never read, whatever an item's pattern matches or a link leads to.
SECRET = re.compile(r".*/\.ssh/.*|/etc/security/opasswd|/etc/kubernetes/.*\.conf|/proc/.*/environ|/proc/k(core|msg)")


def lower_priority() -> None:
    """Give way to everything else on the host: the lowest priority of CPU, and of disks while it still progresses."""
    try:
        os.nice(19)
        import ctypes

        number = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine)  # ioprio_set(2)
        if number:
            ctypes.CDLL(None).syscall(number, 1, 0, 2 << 13 | 7)  # best effort, lowest level
    except (OSError, ImportError):
        pass


class Item:
    """One item of the report: limits and what to read."""

    def __init__(
        self, number: str, milliseconds: str, limit: str, keep: str, redact: str, dated: str, first: str
    ) -> None:
        self.number, self.seconds, self.limit = number, int(milliseconds) / 1000, int(limit)
        self.keep, self.redact, self.dated, self.first = keep, redact, dated == "1", first == "1"
        self.asks: "list[list[str]]" = []

    def all(self, word: str) -> "list[str]":
        return [ask[1] for ask in self.asks if ask[0] == word]


class Collection:
    """Reads the items, a few at a time, within the limits of this host."""

    def __init__(self, agent: "Agent") -> None:
        self.agent = agent
        self.items: "list[Item]" = []
        self.never: "list[str]" = []
        self.running = self.left = 0
        self.until = 0.0
        self.since, self.before, self.salt = "", "", ""
        self.archive: "Archive | None" = None

    def obey(self, word: str, fields: "list[str]") -> None:
        fields = [unescaped(field) for field in fields]
        if word == "item":
            self.items.append(Item(*fields))
        elif word == "never":
            self.never += fields
        elif word == "collect":
            self.until, self.left = time.monotonic() + int(fields[0]) / 1000, int(fields[1])
            self.since, self.before, self.salt = fields[2:5]
            self.salt = self.salt or os.urandom(16).hex()
            lower_priority()
            os.environ.pop("TZ", None)  # logs have the time zone of the host, not of the login
            time.tzset()
            self.agent.phases.append("items")
            self.fill()
        elif word == "archive":
            self.archive = Archive(self.agent, *fields)
        elif word in ("put", "upload", "send"):
            if self.archive:
                self.archive.obey(word, fields)
        else:
            self.items[-1].asks.append([word] + fields)

    def fill(self) -> None:
        """Start the next items. One whose limit may not fit waits for those that run, then gets what is left."""
        while self.items and self.running < PARALLEL:
            item = self.items[0]
            late = time.monotonic() >= self.until
            if not late and self.left < min(item.limit, SMALL) and self.running:
                return
            self.items.pop(0)
            if late or self.left < LEAST:
                self.done(item, "not-read", 0.0, "the %s limit of this node was reached" % ("time" if late else "size"))
                continue
            item.limit = min(item.limit, self.left)
            self.left -= item.limit
            self.running += 1
            ItemChild(self, item)
        if self.archive and not self.running:
            self.archive.finish()

    def send(self, payload: bytes) -> None:
        if self.archive:
            self.archive.take(payload)
        else:
            self.agent.out.frame(b"I", payload)

    def done(self, item: Item, status: str, seconds: float, note: str = "") -> None:
        head = "%s\t-\tdone\t%s\t%d\t" % (item.number, status, seconds * 1e6)
        self.send(head.encode() + escaped(note))


class ItemChild(Child):
    """The child that reads one item; what it sends is passed on."""

    def __init__(self, collection: Collection, item: Item) -> None:
        self.collection, self.item, self.sent, self.reported = collection, item, 0, False
        self.began = time.monotonic()
        self.last = min(self.began + MOST * item.seconds, collection.until) + GRACE
        Child.__init__(self, collection.agent, self.patience(), collection.agent.children)

    def patience(self) -> float:
        return min(self.item.seconds, max(0.0, self.collection.until - time.monotonic())) + GRACE

    def work(self, out: int, err: int) -> None:
        os.close(err)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a write then fails, and programs are killed first
        ItemReader(self.item, self.collection, out).run()
        os._exit(0)

    def progress(self) -> None:
        while len(self.out) >= 4:
            size = struct.unpack_from(">I", self.out)[0]
            if len(self.out) < 4 + size:
                return
            payload = bytes(self.out[4 : 4 + size])
            del self.out[: 4 + size]
            self.deadline = time.monotonic() + self.patience()
            if not payload:
                continue  # a sign of life
            fields = payload[:80].split(b"\t", 4)
            self.sent += int(fields[3].split(b"\n")[0]) if fields[2] == b"data" else 0
            self.reported = fields[2] == b"done"
            self.collection.send(payload)

    def kill(self, reaped: bool = False) -> None:
        """Kill the whole session: programs may have made process groups of their own."""
        if self.pid and not reaped:
            kill_session(self.pid)
        Child.kill(self, reaped)

    def end(self, timed_out: bool = False) -> None:
        """As for every child; one that waits for a processor gets more time."""
        moment = time.monotonic()
        if timed_out and self.pid and moment < self.last and is_busy() and is_starved(self.pid, self.item.seconds):
            self.deadline = moment + 1.0
        else:
            Child.end(self, timed_out)

    def finished(self, timed_out: bool) -> None:
        seconds = time.monotonic() - self.began
        if not self.reported:
            stuck = timed_out and is_stuck(self.pid)
            killed = "killed" if timed_out else "the reading process died"
            note = "stuck in the kernel, abandoned" if stuck else killed
            self.collection.done(self.item, "timed-out" if timed_out else "failed", seconds, note)
        self.collection.running -= 1
        self.collection.left += max(0, self.item.limit - self.sent)
        self.collection.fill()


def kill_session(session: int, *spared: int) -> None:
    """Kill every process of a session; repeated, because they may start others meanwhile."""
    for _ in range(3):
        found = 0
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) in spared:
                continue
            fields = slurp("/proc/" + name + "/stat").rpartition(") ")[2].split()
            if len(fields) > 3 and fields[3] == str(session) and fields[0] not in "ZX":
                found += 1
                try:
                    os.kill(int(name), signal.SIGKILL)
                except OSError:
                    pass
        if not found:
            return


class ItemReader:
    """In the child: reads one item and sends its files as messages through the pipe to the agent."""

    def __init__(self, item: Item, collection: Collection, out: int) -> None:
        self.item, self.out, self.salt, self.never = item, out, collection.salt, collection.never
        self.since, self.before = float(collection.since or 0), float(collection.before or 0)
        self.began = time.monotonic()
        self.patience = Patience(item.seconds, collection.until)
        self.pid = 0  # of the program that runs
        self.files, self.left = 0, item.limit
        self.found: "list[str]" = []  # statuses
        self.notes: "list[str]" = []

    def send(self, payload: bytes) -> None:
        """Send a message; the time that the agent makes us wait is not counted."""
        started = time.monotonic()
        data = struct.pack(">I", len(payload)) + payload
        while data:
            data = data[os.write(self.out, data) :]
        self.patience.deadline += time.monotonic() - started

    def late(self) -> bool:
        """Whether the time is over. While it is extended, the agent gets a sign of life."""
        before = self.patience.deadline
        is_over = self.patience.is_over(self.pid)
        if self.patience.deadline != before:
            self.send(b"")
        return is_over

    def late_note(self, what: str) -> str:
        """The reason of an item whose time is over."""
        return what + ("; " + BUSY if self.patience.is_extended else "")

    def run(self) -> None:
        try:
            if self.wanted():
                self.read_all()
        except OSError as error:
            if error.errno == 32:  # the agent is gone
                kill_session(os.getpid())
            self.note("failed", os.strerror(error.errno or 0))
        status = next((one for one in ("timed-out", "truncated") if one in self.found), "")
        if not status and not self.files:
            self.found = self.found or ["absent"]
        status = status or next((one for one in ("denied", "failed", "absent") if one in self.found), "complete")
        if status == "absent" and self.files:
            status = "complete"
        took = (time.monotonic() - self.began) * 1e6
        head = "%s\t-\tdone\t%s\t%d\t" % (self.item.number, status, took)
        self.send(head.encode() + escaped("; ".join(self.notes)[:400]))

    def note(self, status: str, why: str) -> None:
        self.found.append(status)
        if len(self.notes) < 5 and why not in self.notes:
            self.notes.append(why)

    def wanted(self) -> bool:
        """Whether one of the item's conditions holds; without any, always."""
        asked = [ask[1:] for ask in self.item.asks if ask[0] == "when"]
        for kind, what in asked:
            if kind == "command" and self.program(what):
                return True
            if kind == "path" and any(os.path.exists(path) for path in self.matches(what)):
                return True
        if asked:
            self.note("absent", "this node has none of %s" % ", ".join(what for _, what in asked))
        return not asked

    def program(self, name: str) -> str:
        return find_program(name, PATH.split(":")[1:] + user_directories())

    def read_all(self) -> None:
        """Read paths, then commands. All share the limit: small ones are read whole, the others get equal parts."""
        plans: "list[tuple[int, str, object]]" = []  # size that is wanted, kind, what
        seen = set()  # type: set[str]
        for pattern in self.item.all("path"):
            if self.is_kernel(pattern) and "*" in pattern:
                plans.append((self.item.limit, "pattern", pattern))
                continue
            for path in self.matches(pattern):
                if len(plans) >= MOST_FILES:
                    self.note("truncated", "only the first %d files of %s" % (MOST_FILES, pattern))
                    break
                if path not in seen:
                    seen.add(path)
                    plans.append((self.size_of(path), "file", path))
        commands = list(self.commands())
        plans += [(self.item.limit, "command", argv) for argv in commands]
        left, shares = self.left, {}  # type: int, dict[int, int]
        for at, (size, _, _) in enumerate(sorted(plans, key=lambda plan: plan[0])):
            share = min(size, left // (1 if self.item.first else len(plans) - at))
            shares[size] = max(shares.get(size, 0), share)
            left -= share
        spare = 0
        for size, kind, what in plans:
            allowed, before = shares[size] + spare, self.left
            if kind == "command":
                self.patience.restart()
                if self.run_program(what, allowed) and self.item.first:  # type: ignore[arg-type]
                    break
            elif self.late():
                self.note("timed-out", self.late_note("not all files were read"))
                continue
            elif kind == "pattern":
                self.read_pattern(str(what), allowed)
            else:
                self.read_file(str(what), allowed)
            spare = max(0, allowed - (before - self.left))

    def commands(self) -> "Iterator[list[str]]":
        each = [os.path.basename(path) for pattern in self.item.all("for") for path in self.matches(pattern)]
        for ask in self.item.asks:
            if ask[0] == "command":
                if any("{each}" in word for word in ask):
                    for name in each[:MOST_FILES]:
                        yield [word.replace("{each}", name) for word in ask[1:]]
                else:
                    yield ask[1:]

    def is_kernel(self, path: str) -> bool:
        return path.startswith(("/proc/", "/sys/"))

    def size_of(self, path: str) -> int:
        try:
            return SMALL if self.is_kernel(path) else os.stat(path).st_size
        except OSError:
            return 0

    def matches(self, pattern: str) -> "Iterator[str]":
        """Paths that match: `*` within a directory, `**` any depth of directories, without following links."""
        if "*" not in pattern and "?" not in pattern and "[" not in pattern:
            yield pattern
            return
        excluded = self.item.all("exclude")
        for count, path in enumerate(below("/", pattern.strip("/").split("/"))):
            if count >= MOST_MATCHES or self.late():
                self.note("truncated", "%s matches too much" % pattern)
                return
            if not any(fnmatch.fnmatchcase(path, other.replace("**", "*")) for other in excluded):
                yield path

    def failed(self, path: str, error: OSError, named: bool) -> None:
        reason = os.strerror(error.errno or 0)
        if error.errno in (1, 13):
            self.note("denied", "%s: %s" % (path, reason))
        elif error.errno not in (2, 20, 6, 19):
            self.note("failed", "%s: %s" % (path, reason))
        elif named:
            self.found.append("absent")

    def open(self, path: str) -> int:
        """Open a regular file; raises OSError, also for secrets and for everything that is not a file."""
        real = os.path.realpath(path)
        names = os.path.basename(real), os.path.basename(path)
        never = any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in self.never)
        if never or SECRET.fullmatch(real) or SECRET.fullmatch(path):
            self.note("denied", "%s: never read, may hold a secret" % path)
            raise OSError(2, "")
        if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened: opening a device may have effects
            raise OSError(2, "")
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    def read_file(self, path: str, allowed: int) -> None:
        try:
            fd = self.open(path)
        except OSError as error:
            self.failed(path, error, named=True)
            return
        try:
            if self.is_kernel(path):
                self.read_stream(fd, path, allowed)
            else:
                self.read_part(fd, path, allowed)
        except OSError as error:
            if error.errno == 32:
                raise
            self.failed(path, error, named=True)
        finally:
            os.close(fd)

    def read_part(self, fd: int, path: str, allowed: int) -> None:
        """The part of a file that is in the time window and within the limit."""
        about = os.fstat(fd)
        start, end = 0, about.st_size
        if self.item.dated and (self.since or self.before):
            if self.since and about.st_mtime < self.since:
                self.note("absent", "%s: older than the time window" % path)
                return
            start = position(fd, end, self.since) if self.since else 0
            end = position(fd, end, self.before + 1) if self.before else end
        first, last = start, end
        if end - start > allowed:
            if self.item.keep == "tail":
                first = line_start(fd, end - allowed)
            else:
                last = start + allowed
        sink = Sink(self, path)
        if first > start:
            from_ = max(start, first - BEFORE)
            before = os.pread(fd, first - from_, from_)
            sink.skip(before[before.find(b"\n") + 1 :] if from_ > start else before)
        at = first
        while at < last and not self.late():
            block = os.pread(fd, min(BLOCK, last - at), at)
            if not block:
                break  # the file was shortened
            at += len(block)
            sink.write(block)
        self.left -= at - first
        sink.end(first - start, end - at if at < last or last < end else 0)
        if self.late() and at < last:
            self.note("timed-out", self.late_note("%s: not read to its end" % path))
        elif first > start or last < end:
            self.found.append("truncated")

    def read_stream(self, fd: int, source: str, allowed: int) -> None:
        """A file of the kernel: it reports a wrong size, so it is read to its end."""
        sink, tail, read = Sink(self, source), Tail(allowed), 0
        more = True
        while more and not self.late():
            block = os.read(fd, BLOCK)
            more = bool(block)
            read += len(block)
            if self.item.keep == "tail":
                tail.add(block)
                continue
            sink.write(block[: max(0, allowed - read + len(block))])
            if read > allowed:
                break
        before = tail.pour(sink)
        self.left -= min(read, allowed)
        sink.end(before, -1 if more else 0)
        if more and self.late():
            self.note("timed-out", self.late_note("%s: not read to its end" % source))
        elif before or more:
            self.found.append("truncated")

    def read_pattern(self, pattern: str, allowed: int) -> None:
        """All files of the kernel that a pattern matches, as one file."""
        sink, used, late, denied = None, 0, False, ""  # type: Sink | None, int, bool, str
        for path in self.matches(pattern):
            late = self.late()
            if late or used >= allowed:
                break
            try:
                text = self.read_small(path, min(KERNEL_FILE, allowed - used))
            except OSError as error:
                denied = path if error.errno in (1, 13) else denied  # some files of the kernel can only be written
                if error.errno in (1, 2, 6, 13, 19, 20):
                    continue
                text = b"[" + os.strerror(error.errno or 0).encode() + b"]\n"
            sink = sink or Sink(self, pattern)
            part = b"==> " + escaped(path) + b" <==\n" + text + (b"" if text.endswith(b"\n") else b"\n")
            sink.write(part)
            used += len(part)
        self.left -= used
        if late:
            self.note("timed-out", self.late_note("%s: not all files were read" % pattern))
        elif used >= allowed:
            self.found.append("truncated")
        if sink:
            sink.end(0, -1 if late or used >= allowed else 0)
        elif denied:
            self.note("denied", denied + ": " + os.strerror(13))

    def read_small(self, path: str, limit: int) -> bytes:
        """The start of a file of the kernel, which may give a page at a time."""
        fd, text, piece = self.open(path), b"", b"-"
        try:
            while piece and len(text) < limit:
                piece = os.read(fd, limit - len(text))
                text += piece
        finally:
            os.close(fd)
        return text

    def run_program(self, argv: "list[str]", allowed: int) -> bool:
        """Send a program's output, stdout and stderr together; returns whether it succeeded and printed something."""
        if not self.program(argv[0]):
            self.note("absent", "%s: not installed" % argv[0])
            return False
        is_shell = argv[:2] == ["/bin/sh", "-c"]
        source = argv[2] if is_shell else " ".join(quoted(word) for word in argv)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                exec_program(argv, write, write)
            finally:
                os._exit(127)
        os.close(write)
        self.pid = pid
        sink, tail, size, code = Sink(self, source), Tail(allowed), 0, None  # type: Sink, Tail, int, int | None
        for block in self.output(read, pid):
            size += len(block)
            if self.item.keep == "tail":
                tail.add(block)
            else:
                sink.write(block[: max(0, allowed - size + len(block))])
                if size > allowed:
                    break
        os.close(read)
        late, cut = self.late(), self.item.keep == "head" and size > allowed
        until = time.monotonic() + (0.0 if late or cut else 0.2)
        code = self.ended(pid)
        while code is None and time.monotonic() < until:
            time.sleep(0.001)
            code = self.ended(pid)
        timed_out, self.pid = late and code is None, 0
        if code is None or is_shell:  # a shell may have started others
            kill_session(os.getpid(), os.getpid())
        before = tail.pour(sink)
        self.left -= min(size, allowed)
        if timed_out:
            time.sleep(0.05)
            stuck = self.ended(pid) is None and is_stuck(pid)
            self.note(
                "timed-out", source[:80] + (": stuck in the kernel, abandoned" if stuck else self.late_note(": killed"))
            )
        elif before or cut:
            self.found.append("truncated")
        sink.end(before, -1 if cut or timed_out else 0, code)
        return code == 0 and size > 0

    def output(self, read: int, pid: int) -> "Iterator[bytes]":
        """The output of a program until it ends or its time is over; programs in the background may keep it open."""
        window = TimeWindow(self.since, self.before) if self.item.dated and (self.since or self.before) else None
        poll = select.poll()
        poll.register(read, select.POLLIN)
        poll.register(self.out, 0)  # reports that the agent is gone
        ended = 0.0
        while not self.late() and not (ended and time.monotonic() - ended > 0.3):
            for fd, _ in poll.poll(min(self.patience.left(), 0.2) * 1000):
                if fd == self.out:
                    kill_session(os.getpid(), os.getpid())
                    os._exit(1)
                block = os.read(read, BLOCK)
                more = window.filter(block) if window else block
                if more:
                    yield more
                if not block:
                    return
            if not ended and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                ended = time.monotonic()

    def ended(self, pid: int) -> "int | None":
        """The exit status of a program, negative for a signal; None while it runs."""
        found, status = os.waitpid(pid, os.WNOHANG)
        return None if not found else (status >> 8) or -(status & 127)


def extend(agent: "Agent") -> Collection:
    """Called by the agent after the order `extend`."""
    return Collection(agent)
