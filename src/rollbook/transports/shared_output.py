"""Separate the frames of agents that share a launcher's stdout or stderr, by the tag of each line.

Launchers interleave the lines of their agents, add warnings, and some truncate lines when an agent writes faster than
it is read (Open MPI 4; srun those over 1,024 bytes). A line is taken from its marker to its end or to the next marker.
Every program of the job can write to this output, so only frames with a valid authentication code are passed on. Where
the launcher puts the rank of a process before each of its lines, that rank is part of the agent's claim.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from rollbook.agent.secure import instance_of, line_code
from rollbook.agent.wire import text
from rollbook.protocol.frames import Decoder, Frame
from rollbook.protocol.visit import parse_fields, to_int
from rollbook.transports.claims import Claim

__all__ = ["SharedOutput"]

LINE = re.compile(rb"@rb1 ([0-9]{1,10}-[0-9a-f]{16}) [^\n@]*")
LONGEST = 64 * 1024  # of a line without an end; agents write shorter ones
EARLY = 8 << 20  # bytes taken from an agent whose greeting has not arrived; then it begins again
MAX_EARLY, MAX_KEPT = 16_384, 256 << 20  # such agents, and bytes of all of them; the oldest is dropped
OTHER_KEPT = 16 * 1024
MAX_OF_RANK, MAX_WITHOUT_RANK = 64, 65_536  # agents that the process of a rank, and those without one, may invent


class _Origin(NamedTuple):
    """Where lines come from: their tag, and the rank that the launcher put before them."""

    tag: bytes
    rank: int | None


class _Stream:
    """The lines with one tag: their decoder, what takes the frames, and the frames that came before the greeting."""

    def __init__(self, token: bytes, tag: bytes) -> None:
        self.decoder, self._carry = Decoder(line_code(token, tag)), text(tag.decode())
        self.consumer: Callable[[bytes], None] | None = None
        self.early = bytearray()
        self.received = 0  # bytes before the greeting

    def lines(self, frame: Frame) -> bytes:
        """A frame as lines for the session's decoder, with a checksum in place of the code."""
        return self._carry(frame.kind.encode(), frame.seq, frame.mono, frame.wall, frame.payload)


class SharedOutput:
    """Takes what the launcher prints. `announce` is called once for each agent and returns what takes its lines.

    `label` matches what the launcher puts before each line; its group is the rank. Lines of agents without one are
    dropped: they follow half a line of another process, or come from a program that wrote past the launcher.
    """

    def __init__(
        self,
        token: str,
        announce: Callable[[Claim], Callable[[bytes], None]],
        label: re.Pattern[bytes] | None = None,
    ) -> None:
        self._token, self._announce, self._label = token.encode(), announce, label
        self._streams: dict[_Origin, _Stream] = {}
        self._early: dict[_Origin, _Stream] = {}  # those without a greeting, the oldest first
        self._greeted = Counter[int | None]()  # those with one, by rank
        self._kept = 0  # bytes received by them
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
                label = self._label.fullmatch(line, 0, found.start()) if self._label else None
                if label or not self._label:
                    self._take(_Origin(found[1], int(label[1]) if label else None), found[0] + b"\n")
            self._keep_other(line[end:].rstrip(b"\r") + b"\n")

    def _keep_other(self, noise: bytes) -> None:
        if self._label and (label := self._label.match(noise)):
            noise = noise[label.end() :]
        if noise.strip():
            self._other += noise
            del self._other[:-OTHER_KEPT]

    def _take(self, origin: _Origin, line: bytes) -> None:
        stream = self._streams.get(origin)
        if stream is None:
            if self._greeted[origin.rank] >= (MAX_WITHOUT_RANK if origin.rank is None else MAX_OF_RANK):
                return
            stream = self._streams[origin] = self._early[origin] = _Stream(self._token, origin.tag)
        for frame in stream.decoder.feed(line):
            lines = stream.lines(frame)
            if stream.consumer is None and frame.kind == "H" and (claim := self._claim_of(frame, origin)):
                self._forget(origin)
                self._streams[origin] = stream
                self._greeted[origin.rank] += 1
                stream.consumer = self._announce(claim)
                lines, stream.early = bytes(stream.early) + lines, bytearray()
            if stream.consumer is not None:
                stream.consumer(lines)
            else:
                stream.early += lines
        if stream.consumer is None:
            stream.received += len(line)
            self._kept += len(line)
            if len(self._early) > MAX_EARLY or self._kept > MAX_KEPT or stream.received > EARLY:
                self._forget(origin if stream.received > EARLY else next(iter(self._early)))

    def _forget(self, origin: _Origin) -> None:
        """Drop what came from an agent before its greeting; it may begin again."""
        self._kept -= self._early.pop(origin).received
        del self._streams[origin]

    def _claim_of(self, greeting: Frame, origin: _Origin) -> Claim | None:
        """The claim in a greeting; None if its rank is another than that of its lines."""
        fields = parse_fields(greeting.payload)
        rank, node = to_int(fields.get("rank")), fields.get("node", "-")
        number, _, secret = origin.tag.partition(b"-")
        if rank is not None and str(rank).encode() != number:
            return None
        rank = origin.rank if rank is None else rank  # one that is not stated is the launcher's
        instance = instance_of(self._token, secret).decode()
        return Claim(rank, node.strip("-"), fields.get("hostname", ""), "", instance, origin.rank)
