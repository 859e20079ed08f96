"""The agent's words: clocks, frames on two carriers, and how they leave without ever blocking."""

import os
import struct
import time
import zlib

TYPE_CHECKING = False  # typing itself is too dear to import on every host
if TYPE_CHECKING:
    from collections.abc import Callable

    Clocks = tuple[int, int]
    Carrier = Callable[[bytes, int, int, int, bytes], bytes]

VERSION = "1"
MAGIC = b"\xffRB1"
LINE = 1000  # longest line of the text carrier, newline included
RING = 4 << 20  # bytes that may wait to be sent before samples are thinned out


def now() -> "Clocks":
    """Both clocks in nanoseconds: monotonic, wall."""
    # time.time_ns came with 3.7; a float still tells 250 ns apart at today's epoch.
    return int(time.monotonic() * 1e9), int(time.time() * 1e9)


def slurp(path: str, limit: int = 4096) -> str:
    """The start of a small file, stripped, or an empty text."""
    try:
        with open(path, "rb") as file:  # buffered: the kernel's files give no more than a page at a time
            return file.read(limit).strip().decode("utf-8", "replace")
    except OSError:
        return ""


def lines_of(facts: "list[tuple[str, object]]") -> bytes:
    """Facts as `name=value` lines."""
    return "".join("%s=%s\n" % fact for fact in facts).encode("utf-8", "surrogateescape")


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
            except OSError as error:  # a host or a network that is gone has errors of its own
                raise ConnectionError(error.errno, error.strerror) from error
            self.sent += done
            del self.waiting[:done]
