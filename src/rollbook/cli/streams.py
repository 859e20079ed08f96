"""stdout and stderr, whose readers may go away before the command ends."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO

__all__ = ["end_with_reader", "guard", "mute"]


class _Guarded(io.FileIO):
    """Where a stream is written to. If its reader is gone, output is lost: the command goes on to its own exit code."""

    ends_command = False

    def write(self, data: Any) -> Any:
        """Write bytes, or drop them; raises `BrokenPipeError` if the command ends with its reader."""
        try:
            return super().write(data)
        except BrokenPipeError:
            if self.ends_command:
                raise
            mute(self)
            return memoryview(data).nbytes


def guard(stream: TextIO) -> TextIO:
    """The same stream, guarded; one that Python did not open is returned as it is."""
    if stream not in (sys.__stdout__, sys.__stderr__) or not isinstance(stream, io.TextIOWrapper):
        return stream
    buffer = io.BufferedWriter(_Guarded(stream.fileno(), "w", closefd=False))
    at_once = stream.line_buffering or stream.write_through
    return io.TextIOWrapper(buffer, stream.encoding, "replace", line_buffering=at_once)


def end_with_reader() -> None:
    """Raise `BrokenPipeError` from now on when the reader of stdout is gone: the command does nothing but print."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, _Guarded):
        raw.ends_command = True


def mute(stream: TextIO | io.FileIO) -> None:
    """Discard further output to a stream."""
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream.fileno())
