"""Waiting for something to happen, instead of for a time in which it should have."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from rollbook.journal.reader import Reader
from rollbook.testing.lab.processes import living, process

__all__ = ["READ_PAUSE", "SECONDS", "is_alive", "is_running", "until", "until_sampled", "until_true"]

SECONDS = 60.0  # a busy machine may need long; a test that passes never waits for all of it
READ_PAUSE = 0.2  # between two looks at a journal, which take processor time from what is being tested


def until(there: Callable[[], object], seconds: float = SECONDS, pause: float = 0.05) -> None:
    """Wait until a condition is true, tested after each pause; fails after a number of seconds."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, f"not true within {seconds:g} s"
        time.sleep(pause)


async def until_true(there: Callable[[], object]) -> None:
    """The same without blocking the loop."""
    end = time.monotonic() + SECONDS
    while not there():
        assert time.monotonic() < end, f"not true within {SECONDS:g} s"
        await asyncio.sleep(READ_PAUSE)


def until_sampled(results: Path, hosts: int, samples: int, seconds: float = SECONDS) -> None:
    """Wait until the one record below a directory has at least this many samples of each of its hosts."""

    def sampled() -> bool:
        raw = next(results.glob("*/*/raw"), None)
        found: dict[int, int] = {}
        for entry in Reader(raw) if raw else ():
            if entry.frame and entry.frame.kind == "S":
                found[entry.host] = found.get(entry.host, 0) + 1
        return len(found) == hosts and min(found.values()) >= samples

    until(sampled, seconds, READ_PAUSE)


def is_alive(pid: int | str) -> bool:
    """Whether a process exists and is not a zombie."""
    found = process(int(pid))
    return found is not None and found.is_alive


def is_running(text: str) -> bool:
    """Whether a living process has this in its command line."""
    return any(text in one.cmdline for one in living())
