"""Waiting for conditions instead of for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rollbook.journal.reader import Reader
from rollbook.testing.lab.processes import living, process

if TYPE_CHECKING:
    from rollbook.testing import LabHost

__all__ = [
    "READ_PAUSE",
    "SECONDS",
    "is_alive",
    "is_running",
    "until",
    "until_no_processes",
    "until_sampled",
    "until_true",
]

SECONDS = 60.0  # long enough for a busy machine; a test that passes never waits for all of it
READ_PAUSE = 0.2  # seconds between two reads of a journal, which take CPU time from the code under test


def until(condition: Callable[[], object], seconds: float = SECONDS, pause: float = 0.05) -> None:
    """Wait until a condition is true, tested after each pause; fails after a number of seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not true within {seconds:g} s"
        time.sleep(pause)


async def until_true(condition: Callable[[], object]) -> None:
    """Wait until a condition is true, without blocking the event loop."""
    end = time.monotonic() + SECONDS
    while not condition():
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


def until_no_processes(hosts: Iterable[LabHost]) -> None:
    """Wait until no process is left on these hosts of a lab."""
    chosen = list(hosts)
    until(lambda: not any(host.processes() for host in chosen))


def is_alive(pid: int | str) -> bool:
    """Whether a process exists and is not a zombie."""
    found = process(int(pid))
    return found is not None and found.is_alive


def is_running(text: str) -> bool:
    """Whether a living process has this text in its command line."""
    return any(text in one.cmdline for one in living())
