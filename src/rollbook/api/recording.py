"""Recordings: a leaf on disk, the recorder that fills it, the command that it is about, and its end."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Self

from rollbook.collect.command import Command
from rollbook.collect.marks import VARIABLE, listen
from rollbook.collect.plan import Plan
from rollbook.collect.recorder import Recorder
from rollbook.errors import UsageError
from rollbook.hosts import Host
from rollbook.record.layout import Leaf
from rollbook.record.run import Run
from rollbook.sources import catalogue
from rollbook.transports import Options, route

__all__ = ["Ended", "Settings", "record_for", "run_command"]

ROOM = 64 << 20  # bytes that must be free before a recording starts


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a recording needs to know."""

    hosts: list[Host]
    options: Options = dataclasses.field(default_factory=Options)
    fanout: int = 64
    results: Path = Path("results")
    kind: str = "record"
    interval: float = 10.0
    max_samples: int = 3600
    drop_raw: bool = False
    report: bool = True
    args: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Ended:
    """A recording that is over: the record, the command's exit code, and what went wrong with the recording itself."""

    path: Path
    run: Run
    code: int
    broken: str


def run_command(settings: Settings, argv: list[str]) -> Ended:
    """Run a command with a record around it. Its exit code is in the result; it never fails because of us."""
    if shutil.which(argv[0]) is None:
        raise UsageError(f"cannot run {argv[0]}: no such program")
    return asyncio.run(_Recording(settings, argv).around(argv))


def record_for(settings: Settings, seconds: float | None) -> Ended:
    """Record without a command, for so long or until SIGINT or SIGTERM."""
    return asyncio.run(_Recording(settings, []).alone(seconds))


class _Recording:
    """One recording from preflight to the finished record."""

    def __init__(self, settings: Settings, argv: list[str]) -> None:
        self.settings = settings
        _preflight(settings.results)
        self.leaf = Leaf.make(settings.results, settings.kind, dt.datetime.now(dt.UTC))
        about = {
            "type": settings.kind,
            "stamp": self.leaf.stamp,
            "argv": argv,
            "cwd": str(Path.cwd()),
            "args": settings.args,
            "max_samples": settings.max_samples,
        }
        self.recorder = Recorder(
            self.leaf.path / "raw",
            settings.hosts,
            route(settings.options),
            Plan.of(catalogue.load()),
            interval=settings.interval,
            about=about,
            timeout=settings.options.timeout,
            fanout=settings.fanout,
        )
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()

    async def around(self, argv: list[str]) -> Ended:
        """Snapshot, series, command, snapshot."""
        async with self.recorder as recorder, listen(recorder.mark) as socket:
            await recorder.ready()
            recorder.event("command", state="started", at_ns=time.time_ns())
            await recorder.mark("command")
            logs = (self.leaf.path / "stdout.log", self.leaf.path / "stderr.log")
            command = Command(argv, logs, {VARIABLE: socket, "ROLLBOOK_RECORD": str(self.leaf.path)})
            with self._signals(command):
                code = await command.wait()
                recorder.event("command", state="ended", code=code, at_ns=time.time_ns())
                await recorder.mark("after")
                await self._end()
        return self._finished(code)

    async def alone(self, seconds: float | None) -> Ended:
        """A series without a command."""
        async with self.recorder as recorder, listen(recorder.mark):
            with self._signals(None):
                await recorder.ready()
                await asyncio.wait([asyncio.ensure_future(self._stop.wait())], timeout=seconds)
                await self._end()
        return self._finished(0)

    async def _end(self) -> None:
        """Fresh end facts, unless the user is in a hurry."""
        ending = asyncio.ensure_future(self.recorder.end(facts=True))
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait([ending, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        ending.cancel()
        await asyncio.wait([ending])

    def _signals(self, command: Command | None) -> _Handlers:
        def interrupted(number: int) -> None:
            if self._stop.is_set():
                self._hurry.set()
            self._stop.set()
            if command is not None:
                command.interrupt(number)

        return _Handlers(interrupted, command)

    def _finished(self, code: int) -> Ended:
        from rollbook.api.finish import finish  # noqa: PLC0415 - DuckDB is not needed while the command runs

        run = finish(self.leaf.path, drop_raw=self.settings.drop_raw, report=self.settings.report)
        return Ended(self.leaf.path, run, code, self.recorder.broken)


class _Handlers:
    """Signal handlers for the length of a block."""

    def __init__(self, interrupted: Any, command: Command | None) -> None:
        self._interrupted, self._command = interrupted, command

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._interrupted, number)
        if self._command is not None:
            loop.add_signal_handler(signal.SIGWINCH, self._command.resized)
        return self

    def __exit__(self, *exc: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
            loop.remove_signal_handler(number)


def _preflight(results: Path) -> None:
    """The results directory can be written and has room; said before anything starts."""
    try:
        results.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(results).free
    except OSError as error:
        raise UsageError(f"cannot use {results} for results: {error.strerror}") from error
    if not os.access(results, os.W_OK):
        raise UsageError(f"cannot write to {results}")
    if free < ROOM:
        raise UsageError(f"{results} has only {free >> 20} MiB free; a recording needs at least {ROOM >> 20} MiB")
