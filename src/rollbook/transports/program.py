"""Run a program of the site to its end, with a timeout, without blocking the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence

from rollbook.transports.pipe import Ending, Pipe

__all__ = ["run_program"]

MAX_OUTPUT = 64 << 20


async def run_program(argv: Sequence[str], seconds: float, stdin: bytes = b"") -> tuple[str, Ending]:
    """What the program writes to stdout, and how it ended; raises `AgentFailed` if it cannot be started.

    The exit code is negative if the program did not end within `seconds`, whatever it does when it is terminated.
    `stdin` is small enough for the program to read it before it writes much.
    """
    pipe, output, timed_out = Pipe(argv), bytearray(), True
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                if stdin:
                    await pipe.write(stdin)
                    pipe.end_input()
                while (data := await pipe.read()) and len(output) < MAX_OUTPUT:
                    output += data
                timed_out = False
    finally:
        ending = await pipe.close(grace=0.0 if timed_out else 0.5)
    code = -signal.SIGTERM if timed_out else ending.code
    return output.decode("utf-8", "replace"), Ending(code, ending.stderr)
