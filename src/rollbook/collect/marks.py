"""`rollbook mark NAME` inside a wrapped command reaches the recorder through a socket named in the environment."""

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
LONGEST_PLACE = 80  # bytes; the name of a socket has 107 in all


def mark_name(name: str) -> str:
    """The name of a phase as it is kept; raises `UsageError` for one that cannot be a name."""
    kept = name.strip()
    if not kept or not kept.isprintable() or len(kept) > LONGEST:
        raise UsageError(f"a mark is a name of 1 to {LONGEST} printable characters")
    return kept


@contextlib.asynccontextmanager
async def listen(mark: Callable[[str], Awaitable[None]]) -> AsyncIterator[str]:
    """Take marks while the block runs; gives the path for the command's environment. Only this user can connect."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ValueError, ConnectionError, UsageError):
            await mark(mark_name((await reader.readline()).decode("utf-8", "replace")))
            writer.write(b"ok\n")
            await writer.drain()
        writer.close()

    # In a directory of its own: a record's path may be longer than a socket's name can be, and a job's TMPDIR too.
    place = tempfile.gettempdir()
    if len(os.fsencode(place)) > LONGEST_PLACE:
        place = "/tmp"  # noqa: S108 - only this user can enter what is made there
    with contextlib.ExitStack() as stack:
        try:
            path = str(stack.enter_context(temporary_directory(Path(place))) / "marks")
            server = await asyncio.start_unix_server(take, path, limit=4096)
        except OSError as error:
            raise UsageError(f"cannot take marks in {place}: {error.strerror or error}") from error
        stack.callback(server.close)
        yield path


def send_mark(name: str) -> None:
    """Start a phase of the run this process belongs to; returns when the sample at its edge has been ordered.

    Raises `UsageError` outside of a run or for a bad name, `RecordError` where the recorder is gone or does not answer.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        raise UsageError("not inside `rollbook run`: the mark has nowhere to go")
    said = mark_name(name).encode()
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(5.0)
            link.connect(path)
            link.sendall(said + b"\n")
            if link.recv(16) != b"ok\n":
                raise RecordError("the recorder did not take the mark")
    except OSError as error:
        raise RecordError(f"the recorder does not answer: {error}") from error
