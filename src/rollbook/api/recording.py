"""Recordings: a leaf on disk, the recorder that fills it, and its end. `run` and `record` are made of this."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import os
import re
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from rollbook.api.options import TransportOptions, check_fanout, hosts_of, transport_options
from rollbook.collect.gather import Progress
from rollbook.collect.marks import listen, mark_name
from rollbook.collect.recorder import Recorder
from rollbook.errors import RecordError, UsageError
from rollbook.hosts import Host
from rollbook.protocol.plan import Plan
from rollbook.records import signing
from rollbook.records.layout import Leaf
from rollbook.records.record import Record
from rollbook.sources import catalogue
from rollbook.transports.routing import Options, fallback_route, route

__all__ = ["Recording", "Settings", "record"]

ROOM = 64 << 20  # bytes that must be free before a recording starts
SHORTEST, LONGEST = 0.1, 86400.0  # seconds between samples


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a recording needs to know.

    `kind` is the type of record, `interval` the seconds between samples (0: facts alone), `parts` the directories
    between results and record (the type by default), `sign` a key for the manifest, `args` what the user said, kept as
    it is.
    """

    hosts: list[Host] = dataclasses.field(default_factory=list)
    options: Options = dataclasses.field(default_factory=Options)
    fanout: int = 64
    results: Path = Path("results")
    kind: str = "record"
    interval: float = 10.0
    max_samples: int = 3600
    drop_raw: bool = False
    report: bool = True
    sign: Path | None = None
    parts: tuple[str, ...] = ()
    args: dict[str, Any] = dataclasses.field(default_factory=dict)


class Recording:
    """All hosts recorded from the start of a block to its end, with `with` or `async with`.

    Entering waits until every host has given its start facts or failed to. Leaving takes the end facts, then makes
    tables, page and manifest; `run` is the finished record. `path` is where it lies, `broken` says why recording
    ended early, if it did, `unfinished` why the record could not be made of what was recorded, `unsigned` why it could
    not be signed.
    """

    def __init__(self, settings: Settings, argv: list[str] | None = None, progress: Progress | None = None) -> None:
        self._route, self._fallback = route(settings.options), fallback_route(settings.options)
        _preflight(settings)
        self.settings, self.argv, self._progress = settings, argv or [], progress
        self.socket = self.unfinished = self.unsigned = ""
        self._leaf: Leaf | None = None
        self._recorder: Recorder | None = None
        self._open, self._entered, self._broken = False, False, ""
        self._stack = contextlib.AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._run: Record | None = None

    @property
    def path(self) -> Path:
        """Where the record lies; once the block is entered."""
        if self._leaf is None:
            raise UsageError("the record is begun when the `with` block is entered")
        return self._leaf.path

    @property
    def run(self) -> Record:
        """The finished record; only after the block."""
        if self._run is None:
            raise UsageError("the record is finished when the `with` block is left")
        return self._run

    @property
    def broken(self) -> str:
        """Why recording ended early, empty if it did not."""
        return self._broken or (self._recorder.broken if self._recorder else "")

    async def __aenter__(self) -> Self:
        self._enter_once()
        await self._begin()
        return self

    def _enter_once(self) -> None:
        """A second time would wait for the first to end, or make a record that nobody asked for."""
        if self._entered:
            raise UsageError("a recording can be entered once; make another by `rollbook.record(...)`")
        self._entered = True

    async def _begin(self) -> None:
        """Make the record's directory and start recording; returns when the start facts are in."""
        settings, self._loop = self.settings, asyncio.get_running_loop()
        leaf = Leaf.make(settings.results.absolute(), settings.kind, dt.datetime.now(dt.UTC), settings.parts)
        self._leaf = leaf
        about = {
            "type": settings.kind,
            "stamp": leaf.stamp,
            "argv": self.argv,
            "cwd": str(Path.cwd()),
            "args": settings.args,
            "max_samples": settings.max_samples,
        }
        try:
            self._recorder = await self._stack.enter_async_context(
                Recorder(
                    leaf.path / "raw",
                    settings.hosts,
                    self._route,
                    Plan.of(catalogue.load()),
                    interval=settings.interval,
                    about=about,
                    timeout=settings.options.timeout,
                    fanout=settings.fanout,
                    fallback=self._fallback,
                    progress=self._progress,
                )
            )
            self.socket = await self._stack.enter_async_context(listen(self._recorder.mark))
            await self._recorder.ready()
        except BaseException as error:
            await self._stack.aclose()
            if isinstance(error, Exception):  # it never began: failures of hosts are not raised
                self.discard()
            raise
        self._open = True

    async def __aexit__(self, *exc: object) -> None:
        await self.end()
        await asyncio.to_thread(self.finish)

    async def end(self, *, facts: bool = True, seconds: float | None = None) -> None:
        """Stop recording, with fresh end facts if wanted; the record is not finished yet.

        Each host has `seconds`, or as long as it had for its start facts. A journal that fails meanwhile is no error:
        `broken` says so, and what was written stays.
        """
        self._open = False
        try:
            if self._recorder is not None:
                self._recorder.event("end facts", wanted=facts)
                await self._recorder.end(facts=facts, seconds=seconds)
        except RecordError as error:
            self._broken = str(error)
        with contextlib.suppress(RecordError):
            await self._stack.aclose()

    def discard(self) -> None:
        """Remove what there is: nothing happened that would be worth a record."""
        if self._leaf is not None:
            shutil.rmtree(self._leaf.path, ignore_errors=True)

    def finish(self) -> None:
        """Make the record of what was recorded, and sign it."""
        from rollbook.api.finish import finish  # noqa: PLC0415 - DuckDB is not needed while hosts are recorded

        settings = self.settings
        self._run = finish(self.path, drop_raw=settings.drop_raw, report=settings.report)
        if settings.sign is not None:
            signing.sign(self.path / "manifest.json", settings.sign)

    def finish_or_say(self) -> None:
        """Make the record; where that fails `unfinished` or `unsigned` says why, and what was recorded stays."""
        try:
            self.finish()
        except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the command's exit code is worth more
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or repr(error)
            if self._run is None:
                self.unfinished = why
            else:
                self.unsigned = why

    def mark(self, name: str) -> None:
        """Start a phase, from any thread: noted, and sampled at once on every host."""
        if not self._open:
            raise UsageError("a phase can be marked inside the `with` block only")
        assert self._recorder is not None
        assert self._loop is not None
        marked = asyncio.run_coroutine_threadsafe(self._recorder.mark(mark_name(name)), self._loop)
        if self._thread is not None:
            marked.result(10.0)

    def event(self, event: str, **more: object) -> None:
        """Note something about the run in its journal."""
        assert self._recorder is not None
        self._recorder.event(event, **more)

    def __enter__(self) -> Self:
        self._enter_once()
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="rollbook", daemon=True)
        self._thread.start()
        entering = asyncio.run_coroutine_threadsafe(self._begin(), loop)
        try:
            entering.result()
        except BaseException:
            entering.cancel()
            self._leave()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._loop is not None
        try:
            asyncio.run_coroutine_threadsafe(self.end(), self._loop).result()
        finally:
            self._leave()
        self.finish()

    def _leave(self) -> None:
        """End the thread, after what still runs in it has had the chance to end."""
        assert self._loop is not None
        assert self._thread is not None
        asyncio.run_coroutine_threadsafe(_others_done(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def record(
    hosts: str | Sequence[str] = (),
    *,
    results: Path | str = "results",
    kind: str = "record",
    interval: float = 10.0,
    max_samples: int = 3600,
    drop_raw: bool = False,
    report: bool = True,
    sign: Path | str | None = None,
    fanout: int = 64,
    **options: Unpack[TransportOptions],
) -> Recording:
    """Record hosts while a block runs, `with` or `async with`; without hosts, this machine.

    `hosts` is a nodeset or several, `results` the directory for records and `kind` that of this one below it,
    `interval` the seconds between samples (0.1 to 86400, or 0 for snapshots alone), `max_samples` the most that are
    kept of a host (0: all), `drop_raw` whether the raw log goes once the tables are verified, `sign` an ssh key for the
    manifest; `options` choose the transport (`rollbook.api.options.TransportOptions`).
    """
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
    return Recording(settings)


async def _others_done() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=5.0)


def _preflight(settings: Settings) -> None:
    """Numbers and names make sense, the results directory has room, the key signs; said before anything starts."""
    results, interval = settings.results, settings.interval
    check_fanout(settings.fanout)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", settings.kind):
        raise UsageError(f"{settings.kind!r} cannot be a type of record: only letters, digits, '.', '_' and '-'")
    if interval and not SHORTEST <= interval <= LONGEST:
        raise UsageError(f"the time between samples is {SHORTEST} s to {LONGEST:.0f} s, or 0 for facts alone")
    if settings.max_samples == 1 or settings.max_samples < 0:
        raise UsageError("the first and the last sample of a run are always kept: ask for 2 at least, or 0 for all")
    try:
        str(results.absolute()).encode()
    except UnicodeEncodeError:
        raise UsageError(f"cannot use {results!a} for results: its name is no UTF-8") from None
    try:
        results.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(results).free
    except OSError as error:
        raise UsageError(f"cannot use {results} for results: {error.strerror}") from error
    if not os.access(results, os.W_OK):
        raise UsageError(f"cannot write to {results}")
    if free < ROOM:
        raise UsageError(f"{results} has only {free >> 20} MiB free; a recording needs at least {ROOM >> 20} MiB")
    if settings.sign is not None:
        signing.try_key(settings.sign)
