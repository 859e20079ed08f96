"""`rollbook mark NAME` inside a wrapped command reaches the recorder through a socket named in the environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from rollbook.errors import UsageError

__all__ = ["VARIABLE", "listen", "send_mark"]

VARIABLE = "ROLLBOOK_SOCKET"
LONGEST = 200


@contextlib.asynccontextmanager
async def listen(mark: Callable[[str], Awaitable[None]]) -> AsyncIterator[str]:
    """Take marks while the block runs; gives the path for the command's environment. Only this user can connect."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ValueError, ConnectionError):
            name = (await reader.readline()).decode("utf-8", "replace").strip()[:LONGEST]
            if name:
                await mark(name)
            writer.write(b"ok\n")
            await writer.drain()
        writer.close()

    # In a directory of its own: a record's path may be longer than a socket's name can be.
    directory = tempfile.mkdtemp(prefix="rollbook-")
    path = str(Path(directory) / "marks")
    server = await asyncio.start_unix_server(take, path, limit=4096)
    try:
        yield path
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)


def send_mark(name: str) -> None:
    """Start a phase of the run this process belongs to; returns when the sample at its edge has been ordered."""
    path = os.environ.get(VARIABLE)
    if not path:
        raise UsageError("not inside `rollbook run`: the mark has nowhere to go")
    if not name.strip() or not name.isprintable() or len(name) > LONGEST:
        raise UsageError(f"a mark is a name of 1 to {LONGEST} printable characters")
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(5.0)
            link.connect(path)
            link.sendall(name.encode() + b"\n")
            link.recv(16)
    except OSError as error:
        raise UsageError(f"the recorder does not answer: {error}") from error
