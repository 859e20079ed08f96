"""What a transport is, and the part that those share which run a program with pipes.

A transport is a dataclass; those of its fields that are annotated with an `Option` are its options (`options.py`). One
that runs a program needs `argv(host)` and usually `explain(...)`: `PipeTransport` owns the process, its pipes and its
end. One that does not implements `Transport` and `Channel` itself.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Protocol

from rollbook.clean import shorten
from rollbook.errors import AgentFailed, TransportError
from rollbook.hosts import Host
from rollbook.transports.pipe import Ending, Pipe

__all__ = ["FANOUT", "TIMEOUT", "Channel", "Ending", "PipeTransport", "Route", "Transport", "last_line"]

TIMEOUT = 60.0  # default seconds for each host
FANOUT = 64  # default number of hosts contacted in parallel
LONGEST = 300  # characters of a program's output that become part of a reason


class Channel(Protocol):
    """A two-way byte channel to one agent."""

    async def read(self) -> bytes:
        """The next bytes; empty when the other side has closed."""

    async def write(self, data: bytes) -> None:
        """Send orders. A closed channel discards them; `read` reports that it is closed."""

    async def close(self, grace: float = 0.0) -> Ending:
        """Close our side, give the agent `grace` seconds to exit, then kill it. Never hangs."""


class Transport(Protocol):
    """Starts the agent on a host and carries its bytes."""

    @property
    def name(self) -> str:
        """The value of `--via`, and the collection method in records."""

    async def open(self, host: Host) -> Channel:
        """Start the agent on the host; raises `TransportError` if that cannot even be tried."""

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """Why no agent answered, from how the channel ended and what was received on it."""


Route = Callable[[Host], Transport]
"""The transport for each host."""


class PipeTransport(abc.ABC):
    """A transport that is a program with the agent at the other end of its stdin and stdout."""

    name = "pipe"

    @abc.abstractmethod
    def argv(self, host: Host) -> list[str]:
        """The command line that starts the agent on the host."""

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """Why no agent answered: the last line that the program printed."""
        del host
        output = last_line(ending.stderr) or last_line(heard.decode("utf-8", "replace")) or "no output"
        return AgentFailed(f"the agent did not start (exit code {ending.code}): {output}")

    async def open(self, host: Host) -> Channel:
        """Start the program."""
        return Pipe(self.argv(host))


def last_line(text: str) -> str:
    """The last line of a program's output, truncated to fit into a reason; empty if there is none."""
    return shorten((text.strip().splitlines() or [""])[-1], LONGEST)
