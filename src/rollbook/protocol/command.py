"""A command of the user as an order on the wire, and what the agent answers."""

from __future__ import annotations

import dataclasses

from rollbook.protocol.frames import Frame

__all__ = ["CommandOrder", "output_of"]


@dataclasses.dataclass(frozen=True)
class CommandOrder:
    """The arguments, the seconds after which the command is killed (0: never), and the bytes of output to send."""

    argv: tuple[str, ...]
    seconds: float
    limit: int

    def encode(self) -> bytes:
        """The order line: in arguments, tab, newline and backslash are escaped."""
        words = (word.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n") for word in self.argv)
        milliseconds = max(1, round(self.seconds * 1000)) if self.seconds else 0
        return (
            "\t".join(("exec", str(milliseconds), str(self.limit), *words)).encode("utf-8", "surrogateescape") + b"\n"
        )


def output_of(frame: Frame) -> tuple[bool, bytes]:
    """Whether the output is of stderr, and the output."""
    return frame.payload[:1] == b"e", frame.payload[1:]
