"""A command, or a stretch of time, with a recording around it, in the foreground: signals are handled here."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator

from rollbook.api.recording import Recording, Settings
from rollbook.collect.command import Command
from rollbook.collect.marks import VARIABLE
from rollbook.errors import UsageError

__all__ = ["record_for", "run_command"]


def run_command(settings: Settings, argv: list[str]) -> tuple[Recording, int]:
    """Run a command with a record around it. Gives the recording, finished, and the command's own exit code."""
    if shutil.which(argv[0]) is None:
        raise UsageError(f"cannot run {argv[0]}: no such program")
    recording = Recording(settings, argv)
    code = asyncio.run(_around(recording, argv))
    recording.finish()
    return recording, code


def record_for(settings: Settings, seconds: float | None) -> Recording:
    """Record without a command, for so long or until SIGINT or SIGTERM."""
    recording = Recording(settings)
    asyncio.run(_alone(recording, seconds))
    recording.finish()
    return recording


async def _around(recording: Recording, argv: list[str]) -> int:
    await recording.__aenter__()
    recording.event("command", state="started", at_ns=time.time_ns())
    recording.mark("command")
    logs = (recording.path / "stdout.log", recording.path / "stderr.log")
    command = Command(argv, logs, {VARIABLE: recording.socket, "ROLLBOOK_RECORD": str(recording.path)})
    with _signals(command.interrupt, command.resized) as (_, hurry):
        code = await command.wait()
        recording.event("command", state="ended", code=code, at_ns=time.time_ns())
        recording.mark("after")
        await _ended(recording, hurry)
    return code


async def _alone(recording: Recording, seconds: float | None) -> None:
    with _signals(lambda _: None) as (stop, hurry):
        entering = asyncio.ensure_future(recording.__aenter__())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([entering, stopped], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait([stopped], timeout=seconds)
        stopped.cancel()
        entering.cancel()
        await _ended(recording, hurry)


async def _ended(recording: Recording, hurry: asyncio.Event) -> None:
    """Stop with fresh end facts, unless the user is in a hurry."""
    ending = asyncio.ensure_future(recording.end())
    hurried = asyncio.ensure_future(hurry.wait())
    await asyncio.wait([ending, hurried], return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    if not ending.done():
        ending.cancel()
        await asyncio.wait([ending])
        await recording.end(facts=False)


@contextlib.contextmanager
def _signals(
    interrupt: Callable[[int], None], resized: Callable[[], None] | None = None
) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Events for the first and the second request to stop; each is passed on to `interrupt`."""
    stop, hurry = asyncio.Event(), asyncio.Event()

    def asked(number: int) -> None:
        (hurry if stop.is_set() else stop).set()
        interrupt(number)

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, asked, number)
    if resized is not None:
        loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        yield stop, hurry
    finally:
        for number in (*numbers, signal.SIGWINCH):
            loop.remove_signal_handler(number)
