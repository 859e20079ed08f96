"""A real agent whose orders and frames the test handles itself, for tests of the protocol."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import pytest

from rollbook import agent
from rollbook.protocol.frames import Decoder, Frame
from tests.support.waits import SECONDS

__all__ = ["EARLY", "HandAgent", "set_connect"]

EARLY = 50_000_000  # nanoseconds by which the clock of the stand-in may be early
PYTHON = [sys.executable, "-I", "-S", "-c", agent.BOOTSTRAP, agent.payload()]


def set_connect(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the time after which launched agents give up if they cannot connect to their collector."""
    text = agent.text().replace("CONNECT = 5.0", f"CONNECT = {seconds}")
    assert text != agent.text()
    monkeypatch.setattr(agent, "payload", lambda **_: f"{agent.packed(text.encode())}::")


class HandAgent:
    """An agent process with its orders written and its frames read by the test."""

    def __init__(self, argv: Sequence[str] = (*PYTHON, "binary")) -> None:
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.frames: list[Frame] = []
        self._next = 0
        self._decoder = Decoder()

    @classmethod
    def under(cls, shell: str) -> Self:
        """Start the stand-in under this shell, or the Python agent if the shell is empty."""
        if not shell:
            return cls()
        hand = cls([*shell.split(), "-c", agent.remote_command("none")])
        assert hand.process.stdin is not None
        hand.process.stdin.write(agent.stand_in())
        return hand

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def order(self, *lines: str) -> None:
        """Send order lines; blanks stand for the tabs between fields."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(line.replace(" ", "\t") + "\n" for line in lines).encode())

    def until(self, wanted: Callable[[Frame], bool]) -> Frame:
        """The first wanted frame after the one returned last; all frames read so far are in `frames`."""
        assert self.process.stdout is not None
        end, ended = time.monotonic() + SECONDS, False
        while True:
            while self._next < len(self.frames):
                self._next += 1
                if wanted(self.frames[self._next - 1]):
                    return self.frames[self._next - 1]
            kinds = [frame.kind for frame in self.frames]
            assert not ended, f"the agent ended; it sent {kinds}"
            assert time.monotonic() < end, f"not within {SECONDS:g} s; got {kinds}"
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                self.frames += self._decoder.feed(data, end=not data)
                ended = not data

    def kind(self, letter: str) -> Frame:
        """The next frame of that type."""
        return self.until(lambda frame: frame.kind == letter)

    def readings(self) -> dict[str, bytes]:
        """The readings so far: header line and pages by source id."""
        bodies = [
            zlib.decompress(frame.payload) if frame.kind == "Z" else frame.payload
            for frame in self.frames
            if frame.kind in "RZ"
        ]
        return {body.split(b" ", 1)[0].decode(): body for body in bodies}
