"""What a transport is, and the shared runner of those that are pipes to a program.

A pipe-like transport is an options dataclass with `argv(host)` and `explain(...)`; `PipeTransport` owns the process,
its pipes and its end. A transport that is not a pipe implements `Transport` and `Channel` itself.
"""

from __future__ import annotations

import abc
from typing import Protocol

from rollbook.errors import AgentFailed, TransportError
from rollbook.hosts import Host
from rollbook.transports.pipe import Ending, Pipe

__all__ = ["Channel", "Ending", "PipeTransport", "Transport", "last_line"]

LONGEST = 300  # characters of what a program said that become part of a reason


class Channel(Protocol):
    """A two-way byte channel to one agent."""

    async def read(self) -> bytes:
        """The next bytes; empty when the other side has closed."""

    async def write(self, data: bytes) -> None:
        """Send orders; a channel that is gone swallows them, `read` tells."""

    async def close(self, grace: float = 0.0) -> Ending:
        """Close our side, give the agent `grace` seconds to leave by itself, then end it. Never hangs."""


class Transport(Protocol):
    """A way to start the agent on a host and carry its bytes."""

    @property
    def name(self) -> str:
        """The word used with `--via`, and as collection method in records."""

    async def open(self, host: Host) -> Channel:
        """Start the agent on the host; raises `TransportError` when it cannot even be tried."""

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """Say in words why no agent answered, from how the channel ended and what was heard on it."""


class PipeTransport(abc.ABC):
    """A transport that is a program with the agent at the other end of its stdin and stdout."""

    name = "pipe"

    @abc.abstractmethod
    def argv(self, host: Host) -> list[str]:
        """The command line that starts the agent on the host."""

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """Say in words why no agent answered."""
        del host
        said = last_line(ending.stderr) or last_line(heard.decode("utf-8", "replace")) or "no output"
        return AgentFailed(f"the agent did not start (exit code {ending.code}): {said}")

    async def open(self, host: Host) -> Channel:
        """Start the program."""
        return Pipe(self.argv(host))


def last_line(text: str) -> str:
    """The last of a program's words, fit for a reason: one line, cut where it is long; empty if there are none."""
    line = (text.strip().splitlines() or [""])[-1]
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
