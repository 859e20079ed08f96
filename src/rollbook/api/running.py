"""A command, or a period of time, with a recording around it, in the foreground: signals are handled here."""

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
from typing import Protocol, Unpack

from rollbook.adapters import load
from rollbook.api.arguments import check_keywords
from rollbook.api.options import require_no_event_loop
from rollbook.api.recording import Recording, in_thread
from rollbook.api.settings import RecordingOptions, Settings, settings_of
from rollbook.api.signals import STOPS, Signals
from rollbook.collect.command import Command
from rollbook.collect.gather import Progress
from rollbook.collect.marks import VARIABLE
from rollbook.errors import CannotRun, RollbookError, UsageError
from rollbook.records.locate import LOGS

__all__ = ["RunProgress", "record_for", "run", "run_command"]

HURRIED = 2.0  # seconds for agents to end when the user does not want to wait

Argument = str | bytes | os.PathLike[str]
"""One argument of a command."""


class RunProgress(Progress, contextlib.AbstractContextManager[object], Protocol):
    """Receives the progress of a run; its block lasts while hosts return their start facts."""

    def started(self) -> None:
        """Every host returned its start facts or failed. A `RollbookError` raised here cancels run and recording."""

    def push_failed(self, reason: str) -> None:
        """Pushing failed for the first time; the run continues, and so do the attempts."""

    def writing(self, *, interrupted: bool) -> None:
        """Recording is over, perhaps because a signal asked for it; the record is being written."""

    def bundling(self, hosts: Sequence[str]) -> None:
        """The run failed; an issue report of these hosts is being collected."""

    def still_writing(self) -> None:
        """A signal asked to stop while the record is being written; the next one abandons it."""


class _Abandoned(BaseException):
    """The user does not want to wait until the record is written."""


def run(argv: Sequence[Argument], hosts: str | Sequence[str] = (), **options: Unpack[RecordingOptions]) -> Recording:
    """Run a command with a recording of hosts around it, as `rollbook run` does; without hosts, of this machine.

    Returns the recording: `record` is the finished record, `exit_code` the exit status of the command. `type` names the
    benchmark (default: `generic`), whose adapter finds parameters and metrics; for the other options see
    `RecordingOptions`. Raises `UsageError` for values that cannot be used.
    """
    require_no_event_loop("rollbook.run", "await asyncio.to_thread(rollbook.run, ...)")
    check_keywords(options, RecordingOptions)
    options.setdefault("type", "generic")
    load(options["type"])
    settings = settings_of(hosts, **options)
    with Signals(command=True) as signals:
        return run_command(settings, argv, None, signals)


def run_command(
    settings: Settings,
    argv: Sequence[Argument],
    progress: RunProgress | None,
    signals: Signals,
    *,
    stdout: int = 1,
) -> Recording:
    """Run a command with a recording around it; returns the recording, with the command's own exit status.

    Once the command has started, no error of Rollbook changes that code: if the record cannot be finished,
    `Recording.finish_error` has the reason. `signals` must have been entered. The command's standard output is copied
    to the descriptor `stdout`.
    """
    recording = Recording(settings, _arguments(argv), progress)
    recording.exit_code = asyncio.run(_around(recording, progress, signals, stdout))
    if recording.exit_code is None:
        recording.discard()
        raise KeyboardInterrupt
    recording.place()
    _finish(recording, progress, signals)
    return recording


def _arguments(argv: Sequence[Argument]) -> list[str]:
    """The command as strings; raises `UsageError` if it is not a command or cannot be run."""
    try:
        arguments = [] if isinstance(argv, (str, bytes)) else [os.fsdecode(word) for word in argv]
    except TypeError as error:
        raise UsageError(f"a command is a list of strings or paths: {error}") from error
    if not arguments:
        raise UsageError("a command is a list of strings or paths, its program first")
    if any("\0" in argument for argument in arguments):
        raise UsageError("an argument of a command cannot contain a NUL character")
    program = arguments[0]
    if not program:
        raise UsageError("the command is empty")
    if shutil.which(program) is None:
        found = "/" in program and Path(program).exists()
        reason = "no such program"
        if found:
            reason = "it is a directory" if Path(program).is_dir() else "it is not executable"
        raise CannotRun(f"cannot run {program}: {reason}", found=found)
    return arguments


def record_for(settings: Settings, seconds: float | None, progress: RunProgress, signals: Signals) -> Recording:
    """Record without a command for this many seconds, or until a signal asks to stop."""
    recording = Recording(settings, progress=progress)
    asyncio.run(_alone(recording, seconds, progress, signals))
    _finish(recording, progress, signals)
    return recording


def _finish(recording: Recording, progress: RunProgress | None, signals: Signals) -> None:
    """Write the record. The first signal that asks to stop is reported, the second abandons the record.

    The work is done in another thread: handlers run in this one, and must not interrupt a write.
    """
    if progress is not None:
        recording.on_bundle = progress.bundling
        progress.writing(interrupted=signals.stopped)
    if threading.current_thread() is not threading.main_thread():
        recording.finish_or_explain()
        return
    received = 0

    def stop(number: int) -> None:
        nonlocal received
        if number not in STOPS:
            return
        received += 1
        if received == 2:  # only once: a third signal may come while the exception is handled
            raise _Abandoned
        if received == 1 and progress is not None:
            progress.still_writing()

    finished = in_thread(recording.finish_or_explain)
    try:
        signals.receive(stop)
        finished.result()
        signals.receive(None)
    except _Abandoned:
        signals.receive(None)
        if not finished.done():
            recording.abandon()


async def _around(recording: Recording, progress: RunProgress | None, signals: Signals, stdout: int) -> int | None:
    """The command's exit status; None if the user asked to stop before it was started."""
    argv = recording.argv
    commands: list[Command] = []

    def interrupt(number: int) -> None:
        for command in commands:
            command.resize() if number == signal.SIGWINCH else command.interrupt(number)

    def note_loss(log: str, reason: str) -> None:
        recording.event("log", name=log, reason=reason)

    with _stop_events(signals, interrupt) as (stop, hurry):
        if not await _entered(recording, stop, progress):
            return None
        recording.event("command", state="started", at_ns=time.time_ns())
        recording.mark("command")
        logs = (recording.path / LOGS[0], recording.path / LOGS[1])
        try:
            environment = {VARIABLE: recording.socket, "ROLLBOOK_RECORD": str(recording.path)}
            command = Command(argv, logs, environment, (stdout, 2), note_loss)
        except UsageError:
            await _cancel(recording)
            raise
        commands.append(command)
        code = await command.wait()
        recording.event("command", state="ended", code=code, at_ns=time.time_ns())
        recording.mark("after")
        await _end(recording, hurry)
        await command.drain()
    return code


async def _alone(recording: Recording, seconds: float | None, progress: RunProgress, signals: Signals) -> None:
    with _stop_events(signals, lambda _: None) as (stop, hurry):
        if await _entered(recording, stop, progress):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), seconds)
            await _end(recording, hurry)


async def _entered(recording: Recording, stop: asyncio.Event, progress: RunProgress | None) -> bool:
    """Start recording; False if the user asked to stop before all hosts had returned their start facts."""
    if progress is not None:
        recording.on_push_problem = progress.push_failed
    with progress or contextlib.nullcontext():
        entering, stopped = asyncio.ensure_future(recording.__aenter__()), asyncio.ensure_future(stop.wait())
        await asyncio.wait([entering, stopped], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not entering.done():
            entering.cancel()
            await asyncio.wait([entering])
            return False
    entering.result()
    try:
        if progress is not None:
            progress.started()
    except RollbookError:
        await _cancel(recording)
        raise
    return True


async def _cancel(recording: Recording) -> None:
    """End a recording whose command was not started, and remove its directory."""
    await recording.end(facts=False, seconds=HURRIED)
    recording.discard()


async def _end(recording: Recording, hurry: asyncio.Event) -> None:
    """Stop with end facts, or without them as soon as the user is in a hurry."""
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
def _stop_events(signals: Signals, interrupt: Callable[[int], None]) -> Iterator[tuple[asyncio.Event, asyncio.Event]]:
    """Events for the first and the second request to stop; every signal is passed on to `interrupt`."""
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def handle(number: int) -> None:
        if number in STOPS:
            (hurry if stop.is_set() else stop).set()
        interrupt(number)

    def receive(number: int) -> None:
        """A handler runs between any two instructions of the loop: the loop takes the signal when it is ready."""
        loop.call_soon_threadsafe(handle, number)

    signals.receive(receive)
    try:
        yield stop, hurry
    finally:
        signals.receive(None)
