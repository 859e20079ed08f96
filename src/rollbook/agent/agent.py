"""The agent: runs on a host while Rollbook looks at it, and leaves nothing behind.

It is sent as text in argv and run by `python3 -I -S -c`, by hand as `python3 agent.py CARRIER`. Standard library
only, Python 3.6 or later, no import of the rest of Rollbook; imports are few because each host pays for them. It
takes orders as lines on stdin and answers with frames on stdout; started by a launcher of many, it connects back to
the collector and uses that connection for both, or where no way leads back, it takes its orders from argv and sends
lines on the stdout that it shares with the other agents:

    orders    source ID EVERY LIMIT MILLISECONDS   begins a source of the plan; its asks follow, one a line:
                read PATH | link PATH | run ARGV | space | env PREFIX...        (fields are parted by tabs)
              go PHASE          read every source of the plan once
              sample NANOSECONDS    read the sources with EVERY > 0 on wall-clock multiples of the interval
              clock NANOSECONDS     what to add to this host's clock to get the collector's
              mark NAME         take an extra sample now
              ping TEXT         answer at once, with both clocks
              then              in argv: go on with the next order when every phase is done
              wait              in argv: go on with the next order on SIGUSR1
              stop              say goodbye and end

    frames    H hello   R reading   Z reading, deflated   D phase done   S sample   G gap   P pong   B beat   E end

Whatever may block is touched only by a sacrificial child in its own process group. A child that does not die is
abandoned and counted, never waited for. The agent ends when stdin closes, on SIGTERM, on SIGHUP and with its launcher.
"""

import errno
import os
import select
import struct
import sys
import time
import zlib

TYPE_CHECKING = False  # typing itself is too dear to import on every host
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterator

    Clocks = tuple[int, int]
    Carrier = Callable[[bytes, int, int, int, bytes], bytes]
else:
    import _signal as signal  # what lies under signal, whose enumerations cost more than all else imported here

VERSION = "1"
MAGIC = b"\xffRB1"
LINE = 1000  # longest line of the text carrier, newline included
QUIET = 5.0  # seconds of silence after which a beat is sent
RING = 4 << 20  # bytes that may wait to be sent before samples are thinned out
RUNNING = 4  # sources with programs read side by side
FILES = 8192  # files one wildcard may match
CONNECT = 5.0  # seconds to find a way back to the collector
KEY_BEATS = 60  # after so many beats the deflate streams start anew, so that any minute decodes alone
PATH = ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin"
STATUS = {
    errno.ENOENT: "absent",
    errno.ENOTDIR: "absent",
    errno.ENODEV: "absent",
    errno.ENXIO: "absent",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ETIMEDOUT: "timed-out",
}
# File systems without storage behind them; an autofs would be mounted by asking.
NO_SPACE = set(
    "proc sysfs cgroup cgroup2 devpts devtmpfs securityfs debugfs tracefs mqueue bpf pstore configfs hugetlbfs "
    "fusectl autofs nsfs binfmt_misc rpc_pipefs efivarfs selinuxfs ramfs".split()
)
SECRET = "KEY TOKEN SECRET PASS CRED AUTH COOKIE SIGNATURE PRIVATE SESSION".split()


def now() -> "Clocks":
    """Both clocks in nanoseconds: monotonic, wall."""
    # time.time_ns came with 3.7; a float still tells 250 ns apart at today's epoch.
    return int(time.monotonic() * 1e9), int(time.time() * 1e9)


def slurp(path: str, limit: int = 4096) -> str:
    """The start of a small file, stripped, or an empty text."""
    try:
        with open(path, "rb", 0) as file:
            return file.read(limit).strip().decode("utf-8", "replace")
    except OSError:
        return ""


def lines_of(facts: "list[tuple[str, object]]") -> bytes:
    """Facts as `name=value` lines."""
    return "".join("%s=%s\n" % fact for fact in facts).encode("utf-8", "surrogateescape")


# ---------------------------------------------------------------- carriers


def binary(kind: bytes, seq: int, mono: int, wall: int, payload: bytes) -> bytes:
    """A frame for a clean channel."""
    rest = struct.pack(">cIQQ", kind, seq, mono, wall)
    return MAGIC + struct.pack(">II", len(payload), zlib.crc32(payload, zlib.crc32(rest))) + rest + payload


def text(tag: str) -> "Carrier":
    """A carrier of lines for a channel that others write to as well; the last line of a frame has its sum."""
    from binascii import b2a_base64

    def carry(kind: bytes, seq: int, mono: int, wall: int, payload: bytes) -> bytes:
        head = "%s %d %d %d" % (kind.decode(), seq, mono, wall)
        total = zlib.crc32(payload, zlib.crc32(head.encode()))
        data = b2a_base64(payload).strip()
        start = ("@rb1 %s %d " % (tag, seq)).encode()
        last = start + ("! %s %d %d z%08x " % (kind.decode(), mono, wall, total)).encode()
        lines = []
        while len(data) > LINE - len(last) - 1:
            room = LINE - len(start) - 1
            lines.append(start + data[:room])
            data = data[room:]
        lines.append(last + data)
        return b"\n".join(lines) + b"\n"

    return carry


class Out:
    """Frames on their way to the collector: those made in one turn of the loop leave together.

    Every write wakes a chain of processes up to the collector. Writing never blocks; what does not fit waits.
    With a pace, one line leaves every so many seconds, because a launcher may cut the lines of those who write faster
    than it reads; frames that need no order among them are kept, to be sent once more at the end.
    """

    def __init__(self, fd: int, carrier: "Carrier", pace: float = 0.0) -> None:
        self.fd, self.carrier, self.pace, self.due = fd, carrier, pace, 0.0
        self.waiting, self.kept, self.seq, self.sent, self.last = bytearray(), bytearray(), 0, 0, time.monotonic()
        if pace or not os.isatty(fd):  # a terminal is shared with the shell, unless a launcher gave it
            os.set_blocking(fd, False)

    def frame(self, kind: bytes, payload: bytes = b"", clocks: "Clocks | None" = None) -> None:
        mono, wall = clocks or now()
        data = self.carrier(kind, self.seq, mono, wall, payload)
        self.waiting += data
        if self.pace and kind in b"HDE":  # the collector waits for these: twice at once
            self.waiting += data
        if self.pace and kind in b"HRZ" and len(self.kept) + len(data) < RING:
            self.kept += data
        self.seq += 1
        self.last = time.monotonic()

    def flush(self) -> None:
        while self.waiting and time.monotonic() >= self.due:
            size = 1 << 16
            if self.pace:
                size = self.waiting.rfind(b"\n", 0, LINE) + 1
                self.due = time.monotonic() + self.pace
            try:
                done = os.write(self.fd, bytes(self.waiting[:size]))
            except BlockingIOError:
                return
            self.sent += done
            del self.waiting[:done]


def connect(port: int, addresses: "list[str]", token: bytes, who: bytes) -> bool:
    """Make stdin and stdout a connection to the collector; false where no way leads there.

    All addresses are tried at once, for some may swallow packets. Both sides prove that they know the token and
    neither sends it: whoever else answers at one of the addresses can give no orders.
    """
    import hmac
    import socket

    def proof(*words: bytes) -> bytes:
        return hmac.new(token, b" ".join(words), "sha256").hexdigest().encode()

    def agreed(sock: "socket.socket") -> bool:
        sock.settimeout(3)
        file = sock.makefile("rwb", 0)  # unbuffered: what follows the last line are orders
        theirs = file.readline(100).strip()
        ours = os.urandom(16).hex().encode()
        file.write(b" ".join((b"rollbook", who, ours, proof(b"agent", theirs, ours, who))) + b"\n")
        return hmac.compare_digest(file.readline(100).strip(), proof(b"collector", theirs, ours))

    until = time.monotonic() + CONNECT
    while token and addresses and time.monotonic() < until:
        poll, tried = select.poll(), {}
        for address in addresses:
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
            sock.setblocking(False)
            sock.connect_ex((address, port))
            poll.register(sock, select.POLLOUT)
            tried[sock.fileno()] = sock
        while tried and time.monotonic() < until:
            for fd, _ in poll.poll(100):
                sock = tried.pop(fd)
                poll.unregister(fd)
                try:
                    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) and agreed(sock):
                        # Unanswered beats end an agent whose collector is gone without a word.
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30000)
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        os.dup2(fd, 0)
                        os.dup2(fd, 1)
                        return True
                except OSError:
                    pass
                sock.close()
        time.sleep(os.urandom(1)[0] / 500)  # not all at once again
    return False


# ---------------------------------------------------------------- reading


def fits(name: str, pattern: str) -> bool:
    """Whether a name fits a pattern of letters, `*` and `[0-9]`; fnmatch would import a regular-expression engine."""
    first, star, last = pattern.partition("*")
    if star and "*" not in last and "[" not in pattern:  # as most are
        return len(name) >= len(first + last) and name.startswith(first) and name.endswith(last)
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(fits(name[at:], pattern[1:]) for at in range(len(name) + 1))
    if pattern.startswith("[0-9]"):
        return name[:1].isdigit() and fits(name[1:], pattern[5:])
    return name[:1] == pattern[0] and fits(name[1:], pattern[1:])


def cgroups(own: bool) -> "list[str]":
    """Directories of the agent's own cgroups, one in each hierarchy, or each with its ancestors up to the root."""
    found = []
    for line in slurp("/proc/self/cgroup", 65536).splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        names = [controllers] + controllers.split(",") if controllers else [".", "unified"]
        roots = [os.path.normpath("/sys/fs/cgroup/" + name) for name in names]
        roots = [root for root in roots if os.path.exists(root + "/cgroup.procs")]
        if not roots:
            continue
        path = os.path.normpath("/" + path.lstrip("/"))
        chain = []
        while path != "/":
            if os.path.isdir(roots[0] + path):  # inside a container the path may not be there
                chain.append(roots[0] + path)
            path = os.path.dirname(path)
        chain.append(roots[0])
        found += chain[:1] if own else chain
    return found


class Tree:
    """Directories as they are while one source is read. Each is listed once: that is cheaper than to try its files."""

    def __init__(self) -> None:
        self.listed = {}  # type: dict[str, dict[str, bool]]
        self.cgroups = {}  # type: dict[str, list[str]]

    def names(self, directory: str) -> "dict[str, bool]":
        """What lies in a directory, each with whether something may lie below it."""
        if directory not in self.listed:
            try:
                entries = list(os.scandir(directory))
            except OSError:
                entries = []
            self.listed[directory] = {e.name: not e.is_file(follow_symlinks=False) for e in entries}
        return self.listed[directory]

    def matches(self, pattern: str) -> "list[str]":
        """Paths that match a pattern with wildcards, `{cgroup}` or `{own}`, sorted; one without any is itself."""
        start, *parts = pattern.split("/")
        found, sure = [""], not start
        if start:
            if start not in self.cgroups:
                self.cgroups[start] = cgroups(start == "{own}")
            found = self.cgroups[start]
        for depth, part in enumerate(parts, 1):
            if sure and "*" not in part:
                found = [base + "/" + part for base in found]
                continue
            sure, longer = False, []
            for base in found:
                names = self.names(base or "/")
                if "*" in part:
                    below = [name for name in names if depth == len(parts) or names[name]]
                    longer += [base + "/" + name for name in sorted(below) if name[0] != "." and fits(name, part)]
                elif part in names:
                    longer.append(base + "/" + part)
            found = longer[:FILES]
        return found


def masked(name: str, value: str) -> str:
    """A value fit to leave the host: secrets by name, tokens by look and passwords in addresses are hidden."""
    if any(word in name.upper() for word in SECRET) or value[:4] in ("AKIA", "ASIA", "eyJh"):
        return "***"
    scheme, sep, rest = value.partition("://")
    login, at, host = rest.partition("@")
    return scheme + sep + "***@" + host if sep and at and "/" not in login else value


def environment(prefixes: "list[str]") -> bytes:
    """The environment by allow-list, one `NAME=value` a line."""
    lines = [
        "%s=%s\n" % (name, masked(name, value).replace("\\", "\\\\").replace("\n", "\\n"))
        for name, value in sorted(os.environ.items())
        if name.startswith(tuple(prefixes))
    ]
    return "".join(lines).encode("utf-8", "surrogateescape")


def mounts() -> "list[str]":
    """Mount points with storage behind them; a later mount hides an earlier one at the same place."""
    found = {}
    for line in slurp("/proc/self/mountinfo", 4 << 20).splitlines():
        left, _, right = line.partition(" - ")
        words, kind = left.split(), right.split()[:1]
        if len(words) > 4 and kind:
            found[words[4]] = kind[0]
    return [path for path, kind in found.items() if kind not in NO_SPACE]


def unescaped(path: str) -> bytes:
    r"""A mount point with the kernel's octal escapes (\040) decoded."""
    first, *rest = os.fsencode(path).split(b"\\")
    return first + b"".join(bytes((int(p[:3], 8),)) + p[3:] if p[:3].isdigit() else b"\\" + p for p in rest)


def page(path: str, status: str, data: bytes = b"") -> bytes:
    """One page of a reading: `STATUS LENGTH PATH`, then the bytes."""
    name = path.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-8", "surrogateescape")
    return status.encode() + b" %d " % len(data) + name + b"\n" + data


def failed(error: OSError) -> str:
    """The status that an OSError earns."""
    return STATUS.get(error.errno or 0, "failed")


def installed(program: str) -> bool:
    """Whether there is such a program; a child that only finds that out is too dear."""
    places = (os.environ.get("PATH", "") + PATH).split(":")
    return "/" in program or any(os.path.exists(place + "/" + program) for place in places)


def read_file(path: str, limit: int) -> bytes:
    """A page with a file's text. Kernel files lie about their size: read until an empty answer or the limit."""
    pieces = []  # type: list[bytes]
    left = limit
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while left > 0:
                piece = os.read(fd, min(left, 1 << 16))
                if not piece:
                    return page(path, "ok", b"".join(pieces))
                pieces.append(piece)
                left -= len(piece)
        finally:
            os.close(fd)
    except OSError as error:
        return page(path, failed(error))
    return page(path, "truncated", b"".join(pieces))


def read_link(path: str) -> bytes:
    """A page with a symbolic link's target."""
    try:
        return page(path, "ok", os.readlink(os.fsencode(path)))
    except OSError as error:
        return page(path, failed(error))


def read_space(path: str) -> bytes:
    """A page with what statvfs(2) says of one mount point."""
    try:
        s = os.statvfs(unescaped(path))
    except OSError as error:
        return page(path, failed(error))
    numbers = s.f_bsize, s.f_frsize, s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_favail
    return page(path, "ok", b"%d %d %d %d %d %d %d %d" % numbers)


class Source:
    """One source of the plan, and what sampling it needs to remember."""

    def __init__(self, ident: str, every: str, limit: str, milliseconds: str) -> None:
        self.id, self.every, self.limit, self.seconds = ident, int(every), int(limit), int(milliseconds) / 1000
        self.asks = []  # type: list[list[str]]
        self.files = {}  # type: dict[str, int | None]
        self.stream = None  # type: zlib._Compress | None
        self.before = b""

    def does(self, *ops: str) -> bool:
        return any(ask[0] in ops for ask in self.asks)

    def paths(self, op: str, tree: "Tree") -> "Iterator[str]":
        """The paths asked for, wildcards filled in."""
        for ask in self.asks:
            if ask[0] == op:
                for path in tree.matches(ask[1]):
                    yield path

    def pages(self) -> bytes:
        """All pages that are files, links or environment."""
        pages, left, tree = [], self.limit, Tree()
        for path in self.paths("read", tree):
            pages.append(read_file(path, left) if left > 0 else page(path, "skipped"))
            left -= len(pages[-1])
        pages += [read_link(path) for path in self.paths("link", tree)]
        pages += [page("environment", "ok", environment(ask[1:])) for ask in self.asks if ask[0] == "env"]
        return b"".join(pages)

    def sample(self, key: bool) -> "tuple[int, bytes]":
        """One sample: flags (1 the stream starts anew, 2 nothing changed) and its deflated pages.

        Descriptors stay open; files that appear are found when a stream starts anew.
        """
        if key:
            for path in self.paths("read", Tree()):
                if path not in self.files and os.path.exists(path):
                    self.files[path] = None
        pages = []
        for path, fd in self.files.items():
            try:
                if fd is None:
                    fd = self.files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                data = piece = os.pread(fd, self.limit, 0)
                while piece and len(data) < self.limit:
                    piece = os.pread(fd, self.limit - len(data), len(data))
                    data += piece
                pages.append(page(path, "ok", data))
            except OSError as error:
                if fd is not None:
                    os.close(fd)
                self.files[path] = None
                pages.append(page(path, failed(error)))
        body = b"".join(pages)
        if key or not self.stream:
            # The window must hold the sample before this one; a small one stays in the CPU's cache between beats.
            small = len(body) < 6000
            self.stream = zlib.compressobj(6, zlib.DEFLATED, -13 if small else -15, 6 if small else 8)
        elif body == self.before:
            return 2, b""
        self.before = body
        # A sync flush always ends in 00 00 ff ff: the collector puts it back.
        return int(key), (self.stream.compress(body) + self.stream.flush(zlib.Z_SYNC_FLUSH))[:-4]


# ---------------------------------------------------------------- children


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

    def __init__(self, agent: "Agent", seconds: float) -> None:
        self.agent, self.deadline = agent, time.monotonic() + seconds
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
        agent.children.append(self)

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
        self.agent.children.remove(self)
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


class Program(Child):
    """A program of the host; its output is a page of a reading."""

    def __init__(self, agent: "Agent", reading: "Reading", argv: "list[str]") -> None:
        self.reading, self.argv, self.limit, self.cut = reading, argv, reading.source.limit, False
        Child.__init__(self, agent, reading.source.seconds)

    def work(self, out: int, err: int) -> None:
        os.dup2(out, 1)
        os.dup2(err, 2)
        env = dict(os.environ, PATH=os.environ.get("PATH", "") + PATH, LC_ALL="C", LANG="C")
        try:
            os.execvpe(self.argv[0], self.argv, env)
        except OSError as error:
            os.write(2, failed(error).encode())

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
        self.reading.add(page(name, status, bytes(self.out)), status)


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
        Child.__init__(self, agent, seconds(items[0]))

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


class Reading:
    """A source being read by children; sent when its last page is there."""

    def __init__(self, agent: "Agent", source: "Source", phase: str) -> None:
        self.agent, self.source, self.phase, self.clocks = agent, source, phase, now()
        self.parts, self.status, self.note = [source.pages()], "-", ""
        programs = [ask[1:] for ask in source.asks if ask[0] == "run"]
        places = mounts() if source.does("space") else []
        self.pending = len(programs) + len(places)
        for argv in programs:
            if installed(argv[0]):
                Program(agent, self, argv)
            else:
                self.add(page(" ".join(argv), "absent"), "absent")
        if places:
            each = min(1.0, source.seconds)
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


# ---------------------------------------------------------------- the agent


class Agent:
    """One loop over stdin, stdout and the children's pipes. `about` is what a launcher said of its agents."""

    def __init__(self, out: Out, orders: bytes, about: "list[tuple[str, object]]") -> None:
        self.out, self.orders, self.about = out, orders, about
        self.launcher = os.getppid() if about else 0
        self.hold, self.called = "", False
        self.sources, self.children = [], []  # type: list[Source], list[Child]
        self.waiting, self.phases, self.dying = [], [], []  # type: list[tuple[Source, str]], list[str], list[int]
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
        peak = [line.split()[1] for line in slurp("/proc/self/status").splitlines() if line.startswith("VmHWM")]
        facts = [
            ("cpu", "%.4f" % sum(os.times()[:4])),
            ("peak_kib", peak[0] if peak else ""),
            ("sent", self.out.sent),
            ("samples", self.beats),
            ("late", self.late),
            ("missed", self.missed),
            ("thinned", self.thinned),
            ("stuck", len([pid for pid in self.dying if os.waitpid(pid, os.WNOHANG)[0] == 0])),
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
        elif word in ("read", "link", "run", "space", "env"):
            self.sources[-1].asks.append([word] + rest)
        elif word == "go":
            self.go(rest[0])
        elif word == "ping":
            self.out.frame(b"P", rest[0].encode())
        elif word == "sample":
            self.interval = int(rest[0])
            os.nice(5)
            self.schedule()
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
        plain = [source for source in self.sources if not source.does("run", "space")]
        self.waiting += [(source, phase) for source in self.sources if source not in plain]

        def done(source: "Source", status: str, pages: bytes, clocks: "Clocks", took: int) -> None:
            self.reading(source, phase, pages, clocks, took, status)

        if plain:
            seconds = lambda source: source.seconds  # noqa: E731
            Walk(self, plain, Source.pages, seconds, done)  # type: ignore[arg-type]
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
        parts = []
        for source in self.sources:
            if source.every and self.beats % source.every == 0:
                start = now()[0]
                flags, data = source.sample(key)
                end = now()[0]
                for value in (
                    int(source.id),
                    flags,
                    (start - clocks[0]) // 1000,
                    (end - start) // 1000,
                    len(data),
                ):
                    while value > 127:
                        parts.append(bytes((value & 127 | 128,)))
                        value >>= 7
                    parts.append(bytes((value,)))
                parts.append(data)
        self.beats += 1
        self.out.frame(b"S", b"".join(parts), clocks)

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
            while b"\n" in self.orders and not self.held():
                self.hold = ""
                line, _, self.orders = self.orders.partition(b"\n")
                self.obey(line.decode("utf-8", "surrogateescape"))
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
        pipes = [fd for child in self.children for fd in child.fds] if len(self.out.waiting) < RING else []
        due = [self.out.fd] if self.out.waiting and time.monotonic() >= self.out.due else []
        readable, writable, _ = select.select(orders + pipes, due, [], self.seconds_left())
        if writable:
            self.out.flush()
        for fd in readable:
            if fd == 0:
                self.hear()
            for child in list(self.children):
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
        self.orders += piece

    def end(self, said: bool = True) -> None:
        """End within a second, whatever children or the collector do; lines that leave at a pace get their time."""
        for child in self.children:
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


def whole_lines() -> int:
    """The best of stdout and stderr for lines that must not be cut: a pipe that holds no more than one page.

    Launchers read a page at a time, so what they read then ends where a line does. Open MPI makes stdout a terminal,
    of which this cannot be asked, and stderr a pipe.
    """
    from fcntl import fcntl

    for fd in (1, 2):
        try:
            fcntl(fd, 1031, 4096)  # F_SETPIPE_SZ, which has a name since Python 3.10
            return fd
        except OSError:
            pass
    return 1


def launched(spec: str, orders: str) -> Agent:
    """An agent that a launcher started: `PORT/VARIABLE/VARIABLE/MILLISECONDS/ADDRESS,…`.

    The variables hold its rank and its node's name; a line leaves every so many milliseconds where it has to share
    the launcher's stdout, and its orders are then those of argv, packed like the agent itself.
    """
    from binascii import a2b_base64

    port, rank, node, pace, addresses = spec.split("/")
    rank, node = os.environ.get(rank) or "-", os.environ.get(node) or "-"
    who = "%s %s %s" % (rank, node, os.uname().nodename)
    about = [("rank", rank), ("node", node)]  # type: list[tuple[str, object]]
    token = os.environ.pop("ROLLBOOK_TOKEN", "").encode()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if connect(int(port), [address for address in addresses.split(",") if address], token, who.encode()):
        return Agent(Out(1, binary), b"", about)
    out = Out(whole_lines(), text(str(os.getpid()) if rank == "-" else rank), int(pace) / 1000)
    agent = Agent(out, zlib.decompress(a2b_base64(orders)), about + [("orders", "argv")])
    signal.signal(signal.SIGUSR1, lambda *_: setattr(agent, "called", True))
    return agent


def main(argv: "list[str]") -> None:
    """Run until told to stop: argv is the carrier (`binary`, `text`, `text:TAG`, `connect:…`) and first orders."""
    carrier, _, rest = (argv[0] if argv else "text").partition(":")
    orders = "".join(argv[1:2])
    if carrier == "connect":
        agent = launched(rest, orders)
    else:
        agent = Agent(Out(1, binary if carrier == "binary" else text(rest or "0")), orders.encode(), [])
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: agent.end(said=False))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        agent.run()
    except (ConnectionError, TimeoutError):  # nobody listens any more
        agent.end(said=False)


if __name__ == "__main__":
    # Sent to a host, argv is `-c PAYLOAD CARRIER …`; by hand, `agent.py CARRIER …`.
    main(sys.argv[2:] if sys.argv[0] == "-c" else sys.argv[1:])
