"""Marks from inside a wrapped command: a Unix socket, named in the environment, leads to the recorder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from rollbook.errors import RecordError, UsageError
from rollbook.files import temporary_directory

__all__ = ["VARIABLE", "listen", "mark_name", "send_mark"]

VARIABLE = "ROLLBOOK_SOCKET"
LONGEST = 200
LONGEST_DIRECTORY = 79  # bytes; the path of a socket has at most 107


def mark_name(name: str) -> str:
    """The normalised name of a phase; raises `UsageError` if it is not valid."""
    stripped = name.strip()
    if not stripped or not stripped.isprintable() or len(stripped) > LONGEST:
        raise UsageError(f"a mark is a name of 1 to {LONGEST} printable characters")
    return stripped


@contextlib.asynccontextmanager
async def listen(mark: Callable[[str], Awaitable[None]]) -> AsyncIterator[str]:
    """Accept marks while the block runs; yields the path of the socket. Only this user can connect.

    Raises `UsageError` if the socket cannot be created.
    """

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ValueError, ConnectionError, UsageError):
            await mark(mark_name((await reader.readline()).decode("utf-8", "replace")))
            writer.write(b"ok\n")
            await writer.drain()
        writer.close()

    # Not in the record: its path, like a job's TMPDIR, may be too long for a socket.
    parent = tempfile.gettempdir()
    if len(os.fsencode(parent)) > LONGEST_DIRECTORY:
        parent = "/tmp"  # noqa: S108 - only this user can enter the directory created there
    with contextlib.ExitStack() as stack:
        try:
            path = str(stack.enter_context(temporary_directory(Path(parent))) / "marks")
            server = await asyncio.start_unix_server(take, path, limit=4096)
        except OSError as error:
            raise UsageError(f"cannot create the socket for marks in {parent}: {error.strerror or error}") from error
        stack.callback(server.close)
        yield path


def send_mark(name: str) -> None:
    """Start a phase of the run this process belongs to; returns when the sample at its edge has been requested.

    Raises `UsageError` outside of a run or for an invalid name, `RecordError` if the collector does not answer.
    """
    line = mark_name(name).encode() + b"\n"
    path = os.environ.get(VARIABLE)
    if not path:
        raise UsageError("not inside `rollbook run`: there is no collector to send the mark to")
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(5.0)
            link.connect(path)
            link.sendall(line)
            if link.recv(16) != b"ok\n":
                raise RecordError("the collector did not accept the mark")
    except OSError as error:
        raise RecordError(f"the collector does not answer: {error.strerror or error}") from error
