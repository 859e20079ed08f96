"""Starts and ends the process that pushes metrics; it can neither delay nor fail the recording."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import msgspec

from rollbook.exports.push import END_SECONDS, Job

__all__ = ["Pushing"]

MARGIN = 25.0  # seconds for a machine so busy that the process has not even started, besides the time to send the rest


class Pushing:
    """Use as `async with Pushing(...)` around the recorder: when the block ends, the journal must be complete.

    Leaving waits for the process, at most `seconds`, then kills it. `on_problem` is called with the reason of its first
    failure.
    """

    def __init__(self, raw: Path, url: str, labels: Mapping[str, str], on_problem: Callable[[str], None]) -> None:
        self.seconds = END_SECONDS + MARGIN
        self._job, self._on_problem = Job(str(raw), url, dict(labels)), on_problem
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        argv = [sys.executable, "-P", "-c", "from rollbook.exports.push import main; main()"]
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            # In its own session: Ctrl-C is for the wrapped command.
            self._process = await asyncio.create_subprocess_exec(
                *argv, stdin=pipe, stdout=pipe, stderr=null, start_new_session=True
            )
        except OSError as error:
            self._on_problem(f"cannot start a process: {error.strerror}")
            return self
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(self._job) + b"\n")
        self._listening = asyncio.create_task(self._listen(self._process))
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._process is None or self._listening is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), self.seconds)
        finally:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
            await self._listening

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        with contextlib.suppress(ValueError):  # a line that is too long
            if line := await process.stdout.readline():
                self._on_problem(line.decode("utf-8", "replace").strip())
