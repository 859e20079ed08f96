"""The agent on this machine, as a child process."""

from __future__ import annotations

import dataclasses
import sys

from rollbook import agent
from rollbook.hosts import Host
from rollbook.transports.base import PipeTransport
from rollbook.transports.options import Python

__all__ = ["Local"]


@dataclasses.dataclass(frozen=True)
class Local(PipeTransport):
    """Start the agent on this machine, whatever the host is called."""

    python: Python = None
    name = "local"

    def argv(self, host: Host) -> list[str]:
        """The command that ssh would run, without a login shell."""
        del host
        if self.python is None:
            return [sys.executable, "-I", "-S", "-c", agent.BOOTSTRAP, agent.payload(), "binary"]
        return ["sh", "-c", agent.remote_command(self.python)]
