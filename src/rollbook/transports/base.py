"""What a transport is, and the shared runner of those that are pipes to a program.

A pipe-like transport is an options dataclass with `argv(host)` and `explain(...)`; `PipeTransport` owns the process,
its pipes and its end. A transport that is not a pipe implements `Transport` and `Channel` itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import sys
from typing import Protocol

from rollbook.errors import AgentFailed, TransportError
from rollbook.hosts import Host

__all__ = ["Channel", "Ending", "PipeTransport", "Transport", "use_pidfd"]

STDERR_KEPT = 16 * 1024
READ_SIZE = 256 * 1024


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a channel ended: the program's exit code and the last of what it wrote to stderr."""

    code: int
    stderr: str


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


def use_pidfd() -> None:
    """Let asyncio wait for children through pidfds; Python 3.11 would start a thread for each."""
    if sys.version_info < (3, 12):
        with contextlib.suppress(OSError):  # kernels before 5.3
            os.close(os.pidfd_open(os.getpid()))
            watcher = asyncio.PidfdChildWatcher()
            watcher.attach_loop(asyncio.get_running_loop())
            asyncio.get_event_loop_policy().set_child_watcher(watcher)


class PipeTransport:
    """A transport that is a program with the agent at the other end of its stdin and stdout."""

    name = "pipe"

    def argv(self, host: Host) -> list[str]:
        """The command line that starts the agent on the host."""
        raise NotImplementedError

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """Say in words why no agent answered."""
        del host
        said = (ending.stderr.strip() or heard.decode("utf-8", "replace").strip()).splitlines()
        return AgentFailed(f"the agent did not start (exit code {ending.code}): {said[-1] if said else 'no output'}")

    async def open(self, host: Host) -> Channel:
        """Start the program."""
        argv = self.argv(host)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # Ctrl-C belongs to us: we end the children ourselves, in order.
                start_new_session=True,
            )
        except OSError as error:
            raise AgentFailed(f"cannot run {argv[0]}: {error.strerror}") from error
        return _Pipe(process)


class _Pipe:
    """The channel to a child process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._stderr = bytearray()
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(4096):
            self._stderr += piece
            del self._stderr[:-STDERR_KEPT]

    async def read(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(READ_SIZE)

    async def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    async def close(self, grace: float = 0.0) -> Ending:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(grace):
                await self._process.wait()
        except TimeoutError:
            self._kill(signal.SIGTERM)
            try:
                async with asyncio.timeout(1.0):
                    await self._process.wait()
            except TimeoutError:
                self._kill(signal.SIGKILL)
                await self._process.wait()
        finally:
            self._kill(signal.SIGKILL)  # helpers of the program, such as a ProxyCommand
        # A connection-sharing master may keep stderr open after its client is gone.
        await asyncio.wait([self._draining], timeout=0.2)
        self._draining.cancel()
        return Ending(self._process.returncode or 0, self._stderr.decode("utf-8", "replace"))

    def _kill(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)
