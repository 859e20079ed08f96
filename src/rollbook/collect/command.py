"""The wrapped command: its output shown and logged, its terminal, signals and exit code its own."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import tty
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from rollbook.errors import UsageError

__all__ = ["Command"]


class Command:
    """A program run with our stdin, and copies of its stdout and stderr in files.

    Where our stdout or stderr is a terminal, the program gets a terminal too. The copying is done by threads of its
    own, so that nothing else we do can hold the program up; a log that cannot be written is given up, the program
    goes on.
    """

    def __init__(self, argv: Sequence[str], logs: tuple[Path, Path], environment: Mapping[str, str]) -> None:
        self._terminals: list[int] = []
        self._threads: list[threading.Thread] = []
        ends = [self._channel(stream) for stream in (1, 2)]
        try:
            self._process = subprocess.Popen(
                argv, stdout=ends[0][1], stderr=ends[1][1], env={**os.environ, **environment}
            )
        except OSError as error:
            raise UsageError(f"cannot run {argv[0]}: {error.strerror}") from error
        finally:
            for _, theirs in ends:
                os.close(theirs)
        for (ours, _), shown, log in zip(ends, (1, 2), logs, strict=True):
            thread = threading.Thread(target=_copy, args=(ours, shown, log), daemon=True)
            thread.start()
            self._threads.append(thread)

    async def wait(self) -> int:
        """The exit code, with 128 + n for a program that a signal ended, as shells have it."""
        code = await asyncio.to_thread(self._process.wait)
        for thread in self._threads:
            # A child that was left in the background may hold the pipe open: do not wait for it.
            await asyncio.to_thread(thread.join, 1.0)
        return code if code >= 0 else 128 - code

    def interrupt(self, number: int) -> None:
        """Pass a signal on; Ctrl-C at a terminal has reached the program already, as part of our process group."""
        if number == signal.SIGINT and sys.stdin.isatty():
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def resized(self) -> None:
        """Pass on the size of our terminal."""
        for terminal in self._terminals:
            _size(terminal)

    def _channel(self, stream: int) -> tuple[int, int]:
        """Our end and the program's end of one output."""
        if not os.isatty(stream):
            return os.pipe()
        ours, theirs = pty.openpty()
        with contextlib.suppress(termios.error):
            tty.setraw(theirs)  # our own terminal turns newlines into line ends
        self._terminals.append(ours)
        _size(ours)
        return ours, theirs


def _size(terminal: int) -> None:
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


def _copy(source: int, shown: int, path: Path) -> None:
    """Copy until the program closes its end: to our own output and to the log, either of which may give out."""
    log: BinaryIO | None = None
    with contextlib.suppress(OSError):
        log = path.open("ab", buffering=0)
    show = True
    while True:
        try:
            data = os.read(source, 1 << 16)
        except OSError:  # a terminal's way to say that the other end is closed
            data = b""
        if not data:
            break
        if show:
            show = _written(shown, data)
        if log is not None and not _written(log.fileno(), data):
            log = None
    os.close(source)


def _written(fd: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        return False
    return True
