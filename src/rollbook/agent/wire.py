"""The sending side of the protocol: clocks, frames in two encodings, and an output queue that never blocks."""

import errno
import os
import struct
import time
import zlib

TYPE_CHECKING = False  # importing typing is too expensive on every host
if TYPE_CHECKING:
    from collections.abc import Callable

    Clocks = tuple[int, int]
    Carrier = Callable[[bytes, int, int, int, bytes], bytes]

VERSION = "1"
MAGIC = b"\xffRB1"
LINE = 1000  # longest line of the text carrier, newline included
SHORTAGES = {
    errno.EMFILE: b"too many open files in the agent (ulimit -n)",
    errno.ENFILE: b"too many open files on the host",
    errno.ENOMEM: b"out of memory",
}
QUEUE_LIMIT = 4 << 20  # bytes that may wait to be sent before samples are skipped
APART = 0.001  # seconds between the two clocks of a frame
GATHER, GATHER_BYTES = 0.02, 4096  # facts wait for others this many seconds, up to this many bytes


def now() -> "Clocks":
    """Both clocks in nanoseconds: monotonic, wall.

    An agent that has to wait for a processor between the two tries again.
    """
    # time.time_ns needs Python 3.7; a float still resolves 250 ns at today's epoch.
    for _ in range(5):
        mono, wall = time.monotonic(), time.time()
        if time.monotonic() - mono < APART:
            break
    return int(mono * 1e9), int(wall * 1e9)


shortages = []  # type: list[bytes] # reasons why something could not be looked up since a source was started


def note_shortage(error: OSError) -> None:
    """Remember an error that is not a property of the host: the source that is being read is then failed."""
    if error.errno in SHORTAGES:
        shortages.append(SHORTAGES[error.errno])


def slurp(path: str, limit: int = 4096) -> str:
    """The start of a small file, stripped; an empty string where it cannot be read."""
    try:
        with open(path, "rb") as file:  # buffered: one read of a kernel file returns at most a page
            return file.read(limit).strip().decode("utf-8", "replace")
    except OSError as error:
        note_shortage(error)
        return ""


def lines_of(facts: "list[tuple[str, object]]") -> bytes:
    """Facts as `name=value` lines."""
    return "".join("%s=%s\n" % fact for fact in facts).encode("utf-8", "surrogateescape")


def unpack(packed: str) -> bytes:
    """Data from an argument or an order, packed like the agent itself."""
    from binascii import a2b_base64

    return zlib.decompress(a2b_base64(packed))


def binary(kind: bytes, seq: int, mono: int, wall: int, payload: bytes) -> bytes:
    """A frame for a channel that only the agent writes to."""
    rest = struct.pack(">cIQQ", kind, seq, mono, wall)
    return MAGIC + struct.pack(">II", len(payload), zlib.crc32(payload, zlib.crc32(rest))) + rest + payload


def text(tag: str, code: "Callable[[bytes, bytes], bytes] | None" = None) -> "Carrier":
    """A carrier of lines for a channel that others write to as well; the last line of a frame has its checksum.

    With `code` that is an authentication code of the frame's head and payload.
    """
    from binascii import b2a_base64

    def carry(kind: bytes, seq: int, mono: int, wall: int, payload: bytes) -> bytes:
        head = "%s %d %d %d" % (kind.decode(), seq, mono, wall)
        total = "z%08x" % zlib.crc32(payload, zlib.crc32(head.encode()))
        if code:
            total = "m" + code(head.encode(), payload).hex()
        data = b2a_base64(payload).strip()
        start = ("@rb1 %s %d " % (tag, seq)).encode()
        last = start + ("! %s %d %d %s " % (kind.decode(), mono, wall, total)).encode()
        lines = []
        while len(data) > LINE - len(last) - 1:
            room = LINE - len(start) - 1
            lines.append(start + data[:room])
            data = data[room:]
        lines.append(last + data)
        return b"\n".join(lines) + b"\n"

    return carry


class Out:
    """The output queue: the frames of one turn of the loop are written together, and facts of several turns.

    Every write wakes a chain of processes up to the collector, and may travel as a message of its own. Writing never
    blocks; what does not fit stays queued.
    `pace` is the number of seconds between two lines (0: no limit): a launcher may cut the lines of agents that write
    faster than it reads. Frames that may arrive out of order are then kept and sent a second time at the end.
    """

    def __init__(self, fd: int, carrier: "Carrier", pace: float = 0.0) -> None:
        self.fd, self.carrier, self.pace, self.due = fd, carrier, pace, 0.0
        self.waiting, self.kept, self.seq, self.sent, self.last = bytearray(), bytearray(), 0, 0, time.monotonic()
        if pace or not os.isatty(fd):  # a terminal is shared with the shell, unless a launcher created it
            os.set_blocking(fd, False)

    def frame(self, kind: bytes, payload: bytes = b"", clocks: "Clocks | None" = None) -> None:
        mono, wall = clocks or now()
        data = self.carrier(kind, self.seq, mono, wall, payload)
        self.waiting += data
        if self.pace and kind in b"HDEX":  # the collector waits for these: send them twice
            self.waiting += data
        if self.pace and kind in b"HRZO" and len(self.kept) + len(data) < QUEUE_LIMIT:
            self.kept += data
        self.seq += 1
        self.last = time.monotonic()
        if not self.pace:
            if kind not in b"RZ" or len(self.waiting) > GATHER_BYTES:
                self.due = 0.0
            elif self.due < self.last:
                self.due = self.last + GATHER

    def flush(self) -> None:
        while self.waiting and time.monotonic() >= self.due:
            size = 1 << 16
            if self.pace:
                size = self.waiting.rfind(b"\n", 0, LINE) + 1
                self.due = time.monotonic() + self.pace
            try:
                done = os.write(self.fd, bytes(self.waiting[:size]))
            except BlockingIOError:
                if not self.pace:
                    self.due = 0.0  # what is next is that the pipe has room, not a time
                return
            except OSError as error:  # a lost host or network gives other errors than a closed pipe
                raise ConnectionError(error.errno, error.strerror) from error
            self.sent += done
            del self.waiting[:done]
