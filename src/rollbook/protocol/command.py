"""A command of the user as an order on the wire, and what the agent answers."""

from __future__ import annotations

from collections.abc import Sequence

from rollbook.protocol.frames import Frame

__all__ = ["command_order", "output_of"]


def command_order(argv: Sequence[str], seconds: float, limit: int) -> bytes:
    """The order line: the command is killed after `seconds` (0: never) and may send `limit` bytes of output.

    In arguments, tab, newline and backslash are escaped.
    """
    words = (word.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n") for word in argv)
    milliseconds = max(1, round(seconds * 1000)) if seconds else 0
    return "\t".join(("exec", str(milliseconds), str(limit), *words)).encode("utf-8", "surrogateescape") + b"\n"


def output_of(frame: Frame) -> tuple[bool, bytes]:
    """Whether the output is of stderr, and the output."""
    return frame.payload[:1] == b"e", frame.payload[1:]
