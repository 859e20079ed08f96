"""A command, or a stretch of time, with a recording around it, in the foreground: signals are handled here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Unpack

from rollbook.adapters import load
from rollbook.api.options import TransportOptions, hosts_of, require_no_event_loop, transport_options
from rollbook.api.recording import Recording, Settings
from rollbook.collect.command import Command
from rollbook.collect.gather import Progress
from rollbook.collect.marks import VARIABLE
from rollbook.errors import RollbookError, UsageError

__all__ = ["Start", "record_for", "run", "run_command"]

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
OTHERS = (signal.SIGUSR1, signal.SIGUSR2)  # they mean something to the command alone
HURRIED = 2.0  # seconds for agents to say goodbye when the user does not want to wait

Word = str | bytes | os.PathLike[str]
"""What a command is made of."""


class Start(Progress, Protocol):
    """Who looks on while hosts give their start facts; entered once it is sure that they will be asked."""

    def __enter__(self) -> object: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    def over(self) -> None:
        """Every host gave them or failed to. A `RollbookError` raised here ends it all: nothing is run or recorded."""


def run(
    argv: Sequence[Word],
    hosts: str | Sequence[str] = (),
    *,
    results: Path | str = "results",
    kind: str = "generic",
    interval: float = 10.0,
    max_samples: int = 3600,
    drop_raw: bool = False,
    report: bool = True,
    sign: Path | str | None = None,
    fanout: int = 64,
    **options: Unpack[TransportOptions],
) -> tuple[Recording, int]:
    """Run a command with a record of hosts around it, as `rollbook run` does; without hosts, of this machine.

    Gives the recording, whose `run` is the finished record, and the command's own exit code; what else can be said is
    as for `rollbook.record`. `kind` names the benchmark: its adapter finds parameters and metrics.
    """
    require_no_event_loop("rollbook.run", "await asyncio.to_thread(rollbook.run, ...)")
    load(kind)
    settings = Settings(
        hosts=hosts_of(hosts),
        options=transport_options(**options),
        fanout=fanout,
        results=Path(results),
        kind=kind,
        interval=interval,
        max_samples=max_samples,
        drop_raw=drop_raw,
        report=report,
        sign=Path(sign) if sign else None,
    )
    return run_command(settings, argv)


def run_command(settings: Settings, argv: Sequence[Word], start: Start | None = None) -> tuple[Recording, int]:
    """Run a command with a record around it. Gives the recording and the command's own exit code.

    Once the command has started nothing of ours changes that code: where the record cannot be finished,
    `Recording.unfinished` says why.
    """
    recording = Recording(settings, _words(argv), start)
    code = asyncio.run(_around(recording, start))
    if code is None:
        recording.discard()
        raise KeyboardInterrupt
    recording.finish_or_say()
    return recording, code


def _words(argv: Sequence[Word]) -> list[str]:
    """The command as text; raises `UsageError` where it is none, or cannot be run."""
    try:
        words = [] if isinstance(argv, (str, bytes)) else [os.fsdecode(word) for word in argv]
    except TypeError as error:
        raise UsageError(f"a command is a list of words, text or paths: {error}") from error
    if not words:
        raise UsageError("a command is a list of words, its program first")
    if any("\0" in word for word in words):
        raise UsageError("a word of a command cannot have a NUL character in it")
    program = words[0]
    if shutil.which(program) is None:
        found = "/" in program and Path(program).exists()
        why = "no such option" if program.startswith("-") else "it may not be executed" if found else "no such program"
        raise UsageError(f"cannot run {program}: {why}")
    return words


def record_for(settings: Settings, seconds: float | None, start: Start | None = None) -> Recording:
    """Record without a command, for so long or until SIGINT or SIGTERM."""
    recording = Recording(settings, progress=start)
    asyncio.run(_alone(recording, seconds, start))
    recording.finish_or_say()
    return recording


async def _around(recording: Recording, start: Start | None) -> int | None:
    """The command's exit code; None where the user asked to stop before it was started."""
    argv = recording.argv
    commands: list[Command] = []

    def interrupt(number: int) -> None:
        for command in commands:
            command.interrupt(number)

    def resized() -> None:
        for command in commands:
            command.resize()

    with _signals(interrupt, resized) as (stop, hurry):
        if not await _entered(recording, stop, start):
            return None
        recording.event("command", state="started", at_ns=time.time_ns())
        recording.mark("command")
        logs = (recording.path / "stdout.log", recording.path / "stderr.log")
        try:
            command = Command(argv, logs, {VARIABLE: recording.socket, "ROLLBOOK_RECORD": str(recording.path)})
        except UsageError:
            await _undone(recording)
            raise
        commands.append(command)
        code = await command.wait()
        recording.event("command", state="ended", code=code, at_ns=time.time_ns())
        recording.mark("after")
        await _ended(recording, hurry)
        await command.drain()
    return code


async def _alone(recording: Recording, seconds: float | None, start: Start | None) -> None:
    with _signals(lambda _: None) as (stop, hurry):
        if await _entered(recording, stop, start):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), seconds)
            await _ended(recording, hurry)


async def _entered(recording: Recording, stop: asyncio.Event, start: Start | None) -> bool:
    """Start recording; False where the user asked to stop before all hosts had given their start facts."""
    with start or contextlib.nullcontext():
        entering, stopped = asyncio.ensure_future(recording.__aenter__()), asyncio.ensure_future(stop.wait())
        await asyncio.wait([entering, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not entering.done():
            entering.cancel()
            await asyncio.wait([entering])
            return False
    entering.result()
    try:
        if start is not None:
            start.over()
    except RollbookError:
        await _undone(recording)
        raise
    return True


async def _undone(recording: Recording) -> None:
    """Let the hosts go, and leave nothing of a recording whose command was not started."""
    await recording.end(facts=False, seconds=HURRIED)
    recording.discard()


async def _ended(recording: Recording, hurry: asyncio.Event) -> None:
    """Stop with fresh end facts, unless the user is in a hurry."""
    if not hurry.is_set():
        ending, hurried = asyncio.ensure_future(recording.end()), asyncio.ensure_future(hurry.wait())
        await asyncio.wait([ending, hurried], return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if ending.done():
            return
        ending.cancel()
        await asyncio.wait([ending])
    await recording.end(facts=False, seconds=HURRIED)


@contextlib.contextmanager
def _signals(
    interrupt: Callable[[int], None], resized: Callable[[], None] | None = None
) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Events for the first and the second request to stop; each is passed on to `interrupt`.

    Outside of the main thread there are no signals, and nobody asks.
    """
    stop, hurry = asyncio.Event(), asyncio.Event()

    def asked(number: int) -> None:
        (hurry if stop.is_set() else stop).set()
        interrupt(number)

    if threading.current_thread() is not threading.main_thread():
        yield stop, hurry
        return
    loop = asyncio.get_running_loop()
    for number in STOPS:
        loop.add_signal_handler(number, asked, number)
    if resized is not None:
        for number in OTHERS:
            loop.add_signal_handler(number, interrupt, number)
        loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        yield stop, hurry
    finally:
        for number in (*STOPS, *OTHERS, signal.SIGWINCH):
            loop.remove_signal_handler(number)
