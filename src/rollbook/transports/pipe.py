"""A child process as a byte channel for asyncio, ended for certain.

The standard library's own starts a thread for each child on Python 3.11 and ties the end of the child to the end of
its pipes; here a process that is gone is gone, whoever still holds its stderr.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from rollbook.errors import AgentFailed

__all__ = ["Ending", "Pipe"]

STDERR_KEPT = 16 * 1024
READ_SIZE = 256 * 1024
ROOM = 1 << 20  # as much as anybody may ask for, pipe(7)
PR_SET_PDEATHSIG = 1  # prctl(2)
LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec that may deadlock


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a channel ended: the program's exit code and the last of what it wrote to stderr."""

    code: int
    stderr: str


class Pipe:
    """The channel to a child process in a session of its own: Ctrl-C belongs to us, we end children in order.

    Most programs end when their stdin does; one that does not is to be `mortal`, and the kernel ends it with us.
    `listener` is given what comes on stderr. Pipes that are `roomy` take much more before we read it: some programs
    drop what they could not write when they end.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str] | None = None,
        *,
        mortal: bool = False,
        roomy: bool = False,
        listener: Callable[[bytes], None] | None = None,
    ) -> None:
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env=environ,
                preexec_fn=_end_with_parent if mortal else None,  # noqa: PLW1509 - one system call, no lock
            )
        except OSError as error:
            raise AgentFailed(f"cannot run {argv[0]}: {error.strerror}") from error
        files = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._in, self._out, self._err = (file for file in files if file is not None)
        for file in (self._in, self._out, self._err):
            os.set_blocking(file.fileno(), False)
            if roomy:
                with contextlib.suppress(OSError):  # the user's pipes may be as large together as is allowed
                    fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, ROOM)
        self._stderr, self._listener = bytearray(), listener
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._writing = asyncio.Lock()
        asyncio.get_running_loop().add_reader(self._err.fileno(), self._hear)

    @property
    def stderr(self) -> str:
        """The last of what the process wrote to stderr so far."""
        return self._stderr.decode("utf-8", "replace")

    @property
    def code(self) -> int | None:
        """The exit code, None while the process runs.

        One that ended is not reaped before `close`: until then nobody else can have its number, or that of its group.
        """
        if self._err.closed:
            return self._process.poll()
        try:
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # who started us ignores the end of children, and so the kernel reaps them
            return self._process.poll()
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def signal(self, number: int) -> None:
        """Send a signal to the process, not to its helpers."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def read(self) -> bytes:
        """The next bytes; empty when the other side has closed, or we have."""
        while not self._out.closed:
            try:
                return os.read(self._out.fileno(), READ_SIZE)
            except BlockingIOError:
                await self._ready(self._out.fileno(), write=False)
        return b""

    async def write(self, data: bytes) -> None:
        """Send bytes, those of one caller before those of the next; a process that is gone swallows them."""
        async with self._writing:
            with contextlib.suppress(BrokenPipeError, ValueError):
                while data:
                    try:
                        data = data[os.write(self._in.fileno(), data) :]
                    except BlockingIOError:
                        await self._ready(self._in.fileno(), write=True)

    async def close(self, grace: float = 0.0) -> Ending:
        """Close our side; after `grace` seconds SIGTERM, a second later SIGKILL. Gives how it ended.

        Who is cancelled while waiting leaves no process behind either: SIGKILL comes at once then.
        """
        if not self._err.closed:
            try:
                self._release(self._in)
                with contextlib.suppress(TimeoutError):
                    await self.gone(grace)
                if self.code is None:
                    self._kill(signal.SIGTERM)
                    with contextlib.suppress(TimeoutError):
                        await self.gone(1.0)
            finally:
                self._kill(signal.SIGKILL)  # also helpers of the program, such as a ProxyCommand
                self._hear()
                asyncio.get_running_loop().remove_reader(self._err.fileno())
                self._release(self._out)
                self._err.close()
                # One that is stuck in the kernel, or not ours to kill, is left behind.
                with contextlib.suppress(TimeoutError):
                    await self.gone(1.0)
        code = self._process.poll()
        return Ending(-signal.SIGKILL if code is None else code, self.stderr)

    async def gone(self, seconds: float | None = None) -> None:
        """Wait until the process has ended; raises `TimeoutError` after so many seconds."""
        if self.code is not None:
            return
        async with asyncio.timeout(seconds):
            try:
                fd = os.pidfd_open(self._process.pid)
            except OSError:  # kernels before 5.3
                await asyncio.to_thread(self._wait)
                return
            try:
                await self._ready(fd, write=False)
            finally:
                os.close(fd)

    def _wait(self) -> None:
        """Sleep until the process has ended."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def _hear(self) -> None:
        """Take what is on stderr, keep the last of it."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._err.fileno(), READ_SIZE):
                if self._listener:
                    self._listener(piece)
                self._stderr += piece
                del self._stderr[:-STDERR_KEPT]
            asyncio.get_running_loop().remove_reader(self._err.fileno())

    def _kill(self, number: int) -> None:
        """Send a signal to the process and its helpers; once it is reaped, its number may be another's."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _ready(self, fd: int, *, write: bool) -> None:
        """Wait until a descriptor can be read from, or written to, or is closed by us."""
        loop = asyncio.get_running_loop()
        self._waiting[fd] = ready = loop.create_future()
        (loop.add_writer if write else loop.add_reader)(fd, _settle, ready)
        try:
            await ready
        finally:
            if self._waiting.pop(fd, None):
                (loop.remove_writer if write else loop.remove_reader)(fd)

    def _release(self, file: IO[bytes]) -> None:
        """Close a file and wake who waits for it. The next file opened, maybe another host's, gets its number."""
        if not file.closed and (ready := self._waiting.pop(file.fileno(), None)):
            loop = asyncio.get_running_loop()
            loop.remove_reader(file.fileno())
            loop.remove_writer(file.fileno())
            _settle(ready)
        file.close()


def _settle(ready: asyncio.Future[None]) -> None:
    """Wake who waits, unless they were told to stop waiting a moment ago."""
    if not ready.done():
        ready.set_result(None)


def _end_with_parent() -> None:
    """In a fresh child: have the kernel send SIGTERM when its parent dies."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
