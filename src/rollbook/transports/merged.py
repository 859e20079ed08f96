"""The stdout, or stderr, that all agents of a launcher share: lines told apart by their tags.

Launchers mix the lines of their agents, add warnings of their own, and some cut lines when an agent writes faster
than it is read (Open MPI 4; srun those over 1,024 bytes). A line is taken from its marker to its end or to the next
marker, and goes to its agent's stream as it is: whether it is whole, the frames' checksums say there.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rollbook.protocol.frames import Decoder
from rollbook.protocol.visit import parse_fields, to_int
from rollbook.transports.listener import Who

__all__ = ["Merged"]

LINE = re.compile(rb"@rb1 ([0-9]{1,10}) [^\n@]*")
LONGEST = 64 * 1024  # of a line without an end; no agent's is that long
EARLY = 8 << 20  # what is kept of an agent that has not said yet who it is
MOST_EARLY, MOST_KEPT = 16_384, 256 << 20  # such agents, and what is kept of all of them; the oldest goes
WORDS = 16 * 1024


class Merged:
    """Bytes of the launcher in; `came` is told of each agent once, with a function that takes what is to be read.

    `words` keeps the last of what belongs to no agent.
    """

    def __init__(self, came: Callable[[str, Who], Callable[[bytes], None]]) -> None:
        self._came = came
        self._takers: dict[bytes, Callable[[bytes], None]] = {}
        self._early: dict[bytes, tuple[Decoder, bytearray]] = {}
        self._kept = 0  # bytes of all that are early
        self._rest = b""
        self._words = bytearray()

    @property
    def words(self) -> str:
        """What the launcher itself, or anything else, printed."""
        return self._words.decode("utf-8", "replace")

    def feed(self, data: bytes) -> None:
        """Take what the launcher printed."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            end = 0
            for found in LINE.finditer(line):
                self._say(line[end : found.start()])
                end = found.end()
                self._take(found[1], found[0] + b"\n")
            self._say(line[end:].rstrip(b"\r") + b"\n")

    def _say(self, noise: bytes) -> None:
        if noise.strip():
            self._words += noise
            del self._words[:-WORDS]

    def _take(self, tag: bytes, line: bytes) -> None:
        if tag in self._takers:
            self._takers[tag](line)
            return
        if tag not in self._early:
            self._early[tag] = Decoder(), bytearray()
        decoder, kept = self._early[tag]
        kept += line
        self._kept += len(line)
        for frame in decoder.feed(line):
            if frame.kind == "H":
                hello = parse_fields(frame.payload)
                rank, node = to_int(hello.get("rank")), hello.get("node", "-")
                who = Who(rank, node.strip("-"), hello.get("hostname", ""))
                self._takers[tag] = self._came(tag.decode(), who)
                self._takers[tag](bytes(kept))
                self._forget(tag)
                return
        self._kept -= max(0, len(kept) - EARLY)
        del kept[:-EARLY]
        if len(self._early) > MOST_EARLY or self._kept > MOST_KEPT:
            self._forget(next(iter(self._early)))

    def _forget(self, tag: bytes) -> None:
        _, kept = self._early.pop(tag)
        self._kept -= len(kept)
