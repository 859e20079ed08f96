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

import os
import struct
import time

from rollbook.agent.archive import Archive
from rollbook.agent.children import Child, is_stuck, signal
from rollbook.agent.item_program import kill_session
from rollbook.agent.item_reader import SMALL, Item, ItemReader
from rollbook.agent.item_timeout import MOST, is_busy, is_starved
from rollbook.agent.outgoing import unescaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rollbook.agent.loop import Agent

PARALLEL = 4  # items at a time
GRACE = 3.0  # seconds after its timeout until a child that does not react is abandoned
LEAST = 1 << 12  # bytes for which an item is still read


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
            self.items[-1].parts.append([word] + fields)

    def fill(self) -> None:
        """Start the next items. One whose limit may not fit waits for those that run, then gets what is left."""
        while self.items and self.running < PARALLEL:
            item = self.items[0]
            late = time.monotonic() >= self.until
            if not late and self.left < min(item.limit, SMALL) and self.running:
                return
            self.items.pop(0)
            if late or self.left < LEAST:
                note = "the %s limit of this node was reached" % ("time" if late else "size")
                self.send(item.done("not-read", 0.0, note))
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


class ItemChild(Child):
    """The child that reads one item; what it sends is passed on."""

    def __init__(self, collection: Collection, item: Item) -> None:
        self.collection, self.item, self.sent, self.reported = collection, item, 0, False
        self.began = time.monotonic()
        self.last = min(self.began + MOST * item.seconds, collection.until) + GRACE
        Child.__init__(self, collection.agent, self.time_limit(), collection.agent.children)

    def time_limit(self) -> float:
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
            self.deadline = time.monotonic() + self.time_limit()
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
        if not self.reported:
            stuck = timed_out and is_stuck(self.pid)
            killed = "killed" if timed_out else "the reading process died"
            note = "stuck in the kernel, abandoned" if stuck else killed
            status = "timed-out" if timed_out else "failed"
            self.collection.send(self.item.done(status, time.monotonic() - self.began, note))
        self.collection.running -= 1
        self.collection.left += max(0, self.item.limit - self.sent)
        self.collection.fill()


def extend(agent: "Agent") -> Collection:
    """Called by the agent after the order `extend`."""
    return Collection(agent)
