"""The agent on this very machine."""

from __future__ import annotations

import dataclasses
import sys

from rollbook import agent
from rollbook.hosts import Host
from rollbook.transports.base import PipeTransport

__all__ = ["Local"]


@dataclasses.dataclass(frozen=True)
class Local(PipeTransport):
    """Starts the agent as a child process, whatever the host is called."""

    python: str | None = None
    name = "local"

    def argv(self, host: Host) -> list[str]:
        """The same command that ssh would run, without a login shell; `python` may be `none` for the stand-in."""
        del host
        if self.python is None:
            return [sys.executable, "-I", "-S", "-c", agent.BOOTSTRAP, agent.payload(), "binary"]
        return ["sh", "-c", agent.remote_command(self.python)]
