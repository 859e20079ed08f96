"""What a program of the site answers: run to its end, bounded in time, without blocking the loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from rollbook.transports.pipe import Ending, Pipe

__all__ = ["ask"]

LARGEST = 64 << 20


async def ask(argv: Sequence[str], seconds: float) -> tuple[str, Ending]:
    """What it writes to stdout, and how it ended; raises `AgentFailed` if it cannot be run at all."""
    pipe, answer = Pipe(argv), bytearray()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (data := await pipe.read()) and len(answer) < LARGEST:
                    answer += data
    finally:
        ending = await pipe.close(grace=0.5)
    return answer.decode("utf-8", "replace"), ending
