"""A child process as a channel."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from rollbook.transports.pipe import Pipe
from rollbook.transports.program import run_program


def test_endless_stderr_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Endless standard error of a process is read only a few times per iteration of the loop."""
    reads = 0

    def endless(fd: int, size: int) -> bytes:
        nonlocal reads
        del fd, size
        reads += 1
        if reads > 1000:
            raise BlockingIOError
        return b"y\n"

    async def main() -> None:
        pipe = Pipe(["sleep", "60"])
        with monkeypatch.context() as patch:
            patch.setattr(os, "read", endless)
            pipe._read_stderr()
        await pipe.close()

    asyncio.run(main())
    assert 1 <= reads < 10


def test_cancelled_close_leaves_no_process() -> None:
    """If closing is cancelled, the process is killed and reaped."""

    async def cancelled() -> Pipe:
        pipe = Pipe(["sleep", "60"])
        closing = asyncio.create_task(pipe.close(grace=60))
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        return pipe

    assert asyncio.run(cancelled())._process.returncode == -signal.SIGKILL


def test_a_program_that_exceeds_its_timeout_fails() -> None:
    """Its output is incomplete, even if it exits with 0 just after the timeout or when it is terminated."""
    for program in ("echo a; sleep 1.7; echo b", "trap 'exit 0' TERM; echo a; sleep 60 & wait"):
        output, ending = asyncio.run(run_program(["sh", "-c", program], 1.5))  # a busy machine needs time for `a`
        assert (output, ending.code) == ("a\n", -signal.SIGTERM)
