"""Separate the lines of agents that share a launcher's stdout or stderr, by the tag of each line.

Launchers interleave the lines of their agents, add warnings, and some truncate lines when an agent writes faster than
it is read (Open MPI 4; srun those over 1,024 bytes). A line is taken from its marker to its end or to the next marker,
and passed to its agent's channel as it is: the checksums of frames show there whether it is intact.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from rollbook.protocol.frames import Decoder
from rollbook.protocol.visit import parse_fields, to_int
from rollbook.transports.listener import Claim

__all__ = ["SharedOutput"]

LINE = re.compile(rb"@rb1 ([0-9]{1,10}) [^\n@]*")
LONGEST = 64 * 1024  # of a line without an end; agents write shorter ones
EARLY = 8 << 20  # bytes kept of an agent whose greeting has not arrived
MOST_EARLY, MOST_KEPT = 16_384, 256 << 20  # such agents, and bytes kept of all of them; the oldest is dropped
OTHER_KEPT = 16 * 1024


class SharedOutput:
    """Takes what the launcher prints. `announce` is called once for each agent and returns what takes its lines."""

    def __init__(self, announce: Callable[[Claim], Callable[[bytes], None]]) -> None:
        self._announce = announce
        self._consumers: dict[bytes, Callable[[bytes], None]] = {}
        self._early: dict[bytes, tuple[Decoder, bytearray]] = {}
        self._kept = 0  # bytes in `_early`
        self._rest = b""
        self._other = bytearray()

    @property
    def other(self) -> str:
        """The end of what belongs to no agent: messages of the launcher and of other programs."""
        return self._other.decode("utf-8", "replace")

    def feed(self, data: bytes) -> None:
        """Take what the launcher printed."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            end = 0
            for found in LINE.finditer(line):
                self._keep_other(line[end : found.start()])
                end = found.end()
                self._take(found[1], found[0] + b"\n")
            self._keep_other(line[end:].rstrip(b"\r") + b"\n")

    def _keep_other(self, noise: bytes) -> None:
        if noise.strip():
            self._other += noise
            del self._other[:-OTHER_KEPT]

    def _take(self, tag: bytes, line: bytes) -> None:
        if tag in self._consumers:
            self._consumers[tag](line)
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
                claim = Claim(rank, node.strip("-"), hello.get("hostname", ""))
                self._consumers[tag] = self._announce(claim)
                self._consumers[tag](bytes(kept))
                self._forget(tag)
                return
        self._kept -= max(0, len(kept) - EARLY)
        del kept[:-EARLY]
        if len(self._early) > MOST_EARLY or self._kept > MOST_KEPT:
            self._forget(next(iter(self._early)))

    def _forget(self, tag: bytes) -> None:
        _, kept = self._early.pop(tag)
        self._kept -= len(kept)
