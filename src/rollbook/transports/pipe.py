"""A child process as a byte channel for asyncio, which is certain to end.

The standard library's own starts a thread for each child on Python 3.11 and waits for the pipes to close as well as
for the process; here the end of the process counts, even if another process still holds its stderr.
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
STDERR_READS = 4  # in one turn of the event loop: a process that never stops writing must not block it
LARGE_BUFFER = 1 << 20  # bytes; the default limit for users, pipe(7)
KILLED = 5.0  # seconds until a killed process has ended
PR_SET_PDEATHSIG = 1  # prctl(2)
LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec that may deadlock


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a channel ended: the program's exit code and the end of what it wrote to stderr."""

    code: int
    stderr: str


class Pipe:
    """The channel to a child process in its own session, so that Ctrl-C reaches only us and we end children in order.

    Most programs exit when their stdin closes; for one that does not, `end_with_parent` has the kernel end it with us.
    `on_stderr` is called with what the process writes to stderr. `large_buffers` is for programs that drop what they
    could not write when they exit. Raises `AgentFailed` if the process cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str] | None = None,
        *,
        end_with_parent: bool = False,
        large_buffers: bool = False,
        on_stderr: Callable[[bytes], None] | None = None,
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
                preexec_fn=_end_with_parent if end_with_parent else None,  # noqa: PLW1509 - one system call, no lock
            )
        except OSError as error:
            raise AgentFailed(f"cannot run {argv[0]}: {error.strerror}") from error
        files = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._in, self._out, self._err = (file for file in files if file is not None)
        for file in (self._in, self._out, self._err):
            os.set_blocking(file.fileno(), False)
            if large_buffers:
                with contextlib.suppress(OSError):  # the sum of a user's buffers is limited
                    fcntl.fcntl(file, fcntl.F_SETPIPE_SZ, LARGE_BUFFER)
        self._stderr, self._on_stderr = bytearray(), on_stderr
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._writing = asyncio.Lock()
        asyncio.get_running_loop().add_reader(self._err.fileno(), self._read_stderr)

    @property
    def stderr(self) -> str:
        """The end of what the process wrote to stderr so far."""
        return self._stderr.decode("utf-8", "replace")

    @property
    def code(self) -> int | None:
        """The exit code, None while the process runs.

        A process that ended is not reaped before `close`, so that no other gets its process id or process group.
        """
        if self._err.closed:
            return self._process.poll()
        try:
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # our parent ignores SIGCHLD, so the kernel reaps children
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
        """Send bytes, one caller after the other; they are discarded if the process has ended."""
        async with self._writing:
            with contextlib.suppress(BrokenPipeError, ValueError):
                while data:
                    try:
                        data = data[os.write(self._in.fileno(), data) :]
                    except BlockingIOError:
                        await self._ready(self._in.fileno(), write=True)

    def end_input(self) -> None:
        """Close the process's stdin."""
        self._release(self._in)

    async def close(self, grace: float = 0.0) -> Ending:
        """Close our side; after `grace` seconds send SIGTERM, a second later SIGKILL. Returns how it ended.

        If the caller is cancelled while waiting, SIGKILL is sent immediately.
        """
        if not self._err.closed:
            try:
                self._release(self._in)
                with contextlib.suppress(TimeoutError):
                    await self.wait(grace)
                if self.code is None:
                    self._kill(signal.SIGTERM)
                    with contextlib.suppress(TimeoutError):
                        await self.wait(1.0)
            finally:
                self._kill(signal.SIGKILL)  # also helpers of the program, such as a ProxyCommand
                self._read_stderr()
                asyncio.get_running_loop().remove_reader(self._err.fileno())
                self._release(self._out)
                self._err.close()
                # A process that is stuck in the kernel, or that we may not kill, is left behind. Others end, but one of
                # low priority on a busy machine takes a while.
                try:
                    with contextlib.suppress(TimeoutError):
                        await self.wait(KILLED)
                finally:
                    self._process.poll()  # reaps it, even if the caller is cancelled
        code = self._process.poll()
        return Ending(-signal.SIGKILL if code is None else code, self.stderr)

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until the process has ended; raises `TimeoutError` after `seconds`."""
        if self.code is not None:
            return
        async with asyncio.timeout(seconds):
            try:
                fd = os.pidfd_open(self._process.pid)
            except (AttributeError, OSError):  # kernels before 5.3, Pythons built with an old glibc
                await asyncio.to_thread(self._wait_blocking)
                return
            try:
                await self._ready(fd, write=False)
            finally:
                os.close(fd)

    def _wait_blocking(self) -> None:
        """Block until the process has ended."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def _read_stderr(self) -> None:
        """Read what is on stderr and keep the end of it."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(STDERR_READS):
                piece = os.read(self._err.fileno(), READ_SIZE)
                if not piece:
                    asyncio.get_running_loop().remove_reader(self._err.fileno())
                    return
                if self._on_stderr:
                    self._on_stderr(piece)
                self._stderr += piece
                del self._stderr[:-STDERR_KEPT]

    def _kill(self, number: int) -> None:
        """Signal the process and its helpers, unless it is reaped: then another process may have its id."""
        if self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def _ready(self, fd: int, *, write: bool) -> None:
        """Wait until a descriptor can be read or written, or is closed by us."""
        loop = asyncio.get_running_loop()
        self._waiting[fd] = ready = loop.create_future()
        (loop.add_writer if write else loop.add_reader)(fd, _settle, ready)
        try:
            await ready
        finally:
            if self._waiting.pop(fd, None):
                (loop.remove_writer if write else loop.remove_reader)(fd)

    def _release(self, file: IO[bytes]) -> None:
        """Close a file and wake its waiter: the next file opened, maybe for another host, gets the descriptor."""
        if not file.closed and (ready := self._waiting.pop(file.fileno(), None)):
            loop = asyncio.get_running_loop()
            loop.remove_reader(file.fileno())
            loop.remove_writer(file.fileno())
            _settle(ready)
        file.close()


def _settle(ready: asyncio.Future[None]) -> None:
    """Wake the waiter, unless it was cancelled meanwhile."""
    if not ready.done():
        ready.set_result(None)


def _end_with_parent() -> None:
    """In a fresh child: have the kernel send SIGTERM when its parent dies."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
