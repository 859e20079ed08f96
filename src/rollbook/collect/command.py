"""The wrapped command: its output is copied to ours and to logs; terminal, signals and exit status are its own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import threading
import tty
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rollbook.collect.file_limit import is_raised, restore_limit
from rollbook.errors import CannotRun

__all__ = ["Command"]

RESERVE = 32 << 20
"""Bytes that a log leaves free on its file system, for the rest of the record."""

SHELLS = frozenset({"bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"})
NOT_LOGGED = b"[rollbook: an interactive shell had the terminal, so its output is not logged]\n"
TRUNCATED = "\n[rollbook: log truncated here, {}]\n"
NEARLY_FULL = "the disk is nearly full"
QUIET = 1.0  # seconds without output after which a process left in the background is no longer waited for

OnLoss = Callable[[str, str], None]
"""Called with the name of a log that is given up, and the reason."""


class Command:
    """A program that runs with our stdin; its stdout and stderr are copied to ours and to log files.

    If our stdout or stderr is a terminal, the program gets a terminal too; if both are the same one, one for both, and
    the first log has the output of both in its order. An interactive shell gets our own terminal, which it needs for
    job control; its output is not logged. Separate threads copy the output, so that nothing else in this process can
    block the program. A log that cannot be written is given up and the program continues: the log ends with a
    marker if there is room for it, and `on_loss` is called with its name and the reason, from another thread. If the
    reader of our output closes it, the program finds its own output closed, as it would without us. `outputs` are the
    descriptors that stdout and stderr are copied to.

    Raises `CannotRun` if the program cannot be started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        logs: tuple[Path, Path],
        environment: Mapping[str, str],
        outputs: tuple[int, int] = (1, 2),
        on_loss: OnLoss | None = None,
    ) -> None:
        self._terminals: dict[int, int] = {}  # our terminal by our end of the program's
        direct = _is_interactive_shell(argv) and _is_same_terminal(0, *outputs)
        # On one terminal, output through two channels would lose its order; the log then holds both streams.
        shared = _is_same_terminal(*outputs)
        ends = [] if direct else [self._channel(stream) for stream in outputs[: 1 if shared else 2]]
        stdout, stderr = outputs if direct else (ends[0][1], ends[-1][1])
        try:
            self._process = subprocess.Popen(
                argv,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **environment},
                preexec_fn=restore_limit if is_raised() else None,  # noqa: PLW1509 - one system call
            )
        except OSError as error:
            for ours, _ in ends:
                os.close(ours)
            found = error.errno != errno.ENOENT or Path(argv[0]).exists()  # its interpreter may be missing
            raise CannotRun(f"cannot run {argv[0]}: {error.strerror}", found=found) from error
        finally:
            for _, theirs in ends:
                os.close(theirs)
        self._copies = [
            _Copy(ours, output, log, on_loss) for (ours, _), output, log in zip(ends, outputs, logs, strict=False)
        ]
        for copy in self._copies:
            copy.start()
        if direct:
            _create(logs[0], NOT_LOGGED)
        if shared:
            _create(logs[1], b"")

    async def wait(self) -> int:
        """The exit status; 128 + n for a program that was ended by signal n, as in shells."""
        code = await asyncio.to_thread(self._process.wait)
        return code if code >= 0 else 128 - code

    async def drain(self) -> None:
        """Wait until all output is copied; a process left in the background is not waited for once it is quiet.

        Later output of such a process is shown but not logged: the record already has the hashes of the logs.
        """
        for copy in self._copies:
            while copy.is_alive():
                before = copy.copied
                await asyncio.to_thread(copy.join, QUIET)
                if copy.reading and copy.copied == before:
                    break
            copy.logging = False

    def interrupt(self, number: int) -> None:
        """Forward a signal, except one typed at our terminal: that has reached the program as a member of our group."""
        if number in (signal.SIGINT, signal.SIGQUIT) and _at_terminal():
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def resize(self) -> None:
        """Copy the size of our terminal to the program's, then send it SIGWINCH."""
        for terminal, stream in self._terminals.items():
            _size(stream, terminal)
        if self._terminals:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGWINCH)

    def _channel(self, stream: int) -> tuple[int, int]:
        """Our end and the program's end of one output stream."""
        if not os.isatty(stream):
            return os.pipe()
        ours, theirs = pty.openpty()
        with contextlib.suppress(termios.error):
            tty.setraw(theirs)  # our own terminal converts newlines
        self._terminals[ours] = stream
        _size(stream, ours)
        return ours, theirs


def _is_interactive_shell(argv: Sequence[str]) -> bool:
    """Whether this is a shell that reads commands from its stdin: without a script, and without -c."""
    options = argv[1:]
    script = any(not word.startswith(("-", "+")) for word in options) and "-i" not in options
    command = any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) for word in options)
    return Path(argv[0]).name in SHELLS and not script and not command


def _is_same_terminal(*streams: int) -> bool:
    try:
        return all(map(os.isatty, streams)) and len({os.fstat(stream).st_rdev for stream in streams}) == 1
    except OSError:
        return False


def _create(log: Path, text: bytes) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)


def _at_terminal() -> bool:
    """Whether keys typed at our terminal send signals to our process group, even if stdin is not that terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # it was closed in the meantime
        return False
    finally:
        os.close(terminal)


def _size(stream: int, terminal: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(stream, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


class _Copy(threading.Thread):
    """Copies until the program closes its end: to our output and to the log, either of which may fail."""

    def __init__(self, source: int, output: int, log: Path, on_loss: OnLoss | None) -> None:
        super().__init__(daemon=True)
        self._source, self._output, self._log, self._on_loss = source, output, log, on_loss
        self.copied = 0
        self.reading = False
        self.logging = True

    def run(self) -> None:
        """The thread itself."""
        showing = True
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, self._source)
            log = self._open_log(stack)
            stack.enter_context(contextlib.suppress(BrokenPipeError))
            while data := self._read():
                if log is not None and self.logging:
                    self._write_log(log, data)
                showing = showing and _show(self._output, data)
                self.copied += len(data)

    def _open_log(self, stack: contextlib.ExitStack) -> int | None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            log = os.open(self._log, flags, 0o600)
        except OSError as error:
            self._give_up(None, os.strerror(error.errno or 0))
            return None
        stack.callback(os.close, log)
        return log

    def _write_log(self, log: int, data: bytes) -> None:
        if _nearly_full(log):
            self._give_up(log, NEARLY_FULL)
            return
        try:
            _write_all(log, data)
        except OSError as error:
            self._give_up(log, os.strerror(error.errno or 0))

    def _give_up(self, log: int | None, reason: str) -> None:
        """Stop logging; the log must not look complete."""
        self.logging = False
        if log is not None:
            _append_marker(log, TRUNCATED.format(reason).encode())
        if self._on_loss is not None:
            self._on_loss(self._log.name, reason)

    def _read(self) -> bytes:
        self.reading = True
        try:
            return os.read(self._source, 1 << 16)
        except OSError:  # a terminal reports a closed other end with an error
            return b""
        finally:
            self.reading = False


def _nearly_full(fd: int) -> bool:
    try:
        found = os.fstatvfs(fd)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < RESERVE


def _append_marker(log: int, marker: bytes) -> None:
    """End a log with a marker if that is possible; without room for it, the marker replaces the last bytes."""
    with contextlib.suppress(OSError):
        try:
            _write_all(log, marker)
        except OSError:
            os.ftruncate(log, max(0, os.fstat(log).st_size - len(marker)))
            _write_all(log, marker)


def _show(fd: int, data: bytes) -> bool:
    """Write to our output, however slow its reader; returns whether that was possible. Raises `BrokenPipeError`."""
    try:
        _write_all(fd, data)
    except BrokenPipeError:
        raise
    except OSError:
        return False
    return True


def _write_all(fd: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # a program that shares our output, such as ssh, may have made it non-blocking
            select.select([], [fd], [])
