"""Recordings: a record directory, the recorder that fills it, and its end. `run` and `record` are built on this."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import msgspec

from rollbook.api.settings import RecordingOptions, Settings, preflight, settings_of, working_directory
from rollbook.collect.gather import Progress
from rollbook.collect.marks import listen, mark_name
from rollbook.collect.recorder import Recorder
from rollbook.errors import RecordError, UsageError
from rollbook.protocol.plan import Plan
from rollbook.protocol.redaction import mask_command_line
from rollbook.records import signing
from rollbook.records.hosts import Coverage
from rollbook.records.layout import RecordDirectory
from rollbook.records.record import Record
from rollbook.sources import catalogue
from rollbook.transports.routing import fallback_route, route

if TYPE_CHECKING:
    from rollbook.api.pushing import Pushing

__all__ = ["INTERRUPTED", "Recording", "in_thread", "record"]

T = TypeVar("T")
INTERRUPTED = "interrupted"


class Recording:
    """Records all hosts from the start of a block to its end, with `with` or `async with`.

    Entering waits until every host has returned its start facts or failed. Leaving takes the end facts, then writes
    tables, page and manifest; `record` is the finished record, `coverage` its hosts by status. `path` is its
    directory. `recording_error` is why recording ended early, `finish_error` why the record could not be finished,
    `signing_error` why it could not be signed; each is empty if all went well. `exit_code` is that of the command
    that `rollbook.run` ran. `bundle` is the issue report that was taken because the run failed, `bundle_error` why it
    could not be taken; `on_bundle` is called with the hosts before it is taken. `on_push_problem` is called with the
    reason when pushing fails for the first time.
    """

    def __init__(self, settings: Settings, argv: list[str] | None = None, progress: Progress | None = None) -> None:
        self._route, self._fallback = route(settings.options), fallback_route(settings.options)
        preflight(settings)
        self.settings, self.argv, self._progress = settings, argv or [], progress
        self.socket = self.finish_error = self.signing_error = ""
        self.exit_code: int | None = None
        self.bundle: Path | None = None
        self.bundle_error = ""
        self.on_bundle: Callable[[Sequence[str]], None] = lambda _: None
        self.on_push_problem: Callable[[str], None] = lambda _: None
        self._pushing: Pushing | None = None
        self._directory: RecordDirectory | None = None
        self._recorder: Recorder | None = None
        self._open, self._entered, self._recording_error = False, False, ""
        self._stack = contextlib.AsyncExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._record: Record | None = None

    @property
    def path(self) -> Path:
        """The record directory; raises `UsageError` before the block is entered."""
        if self._directory is None:
            raise UsageError("the record directory is created when the `with` block is entered")
        return self._directory.path

    @property
    def record(self) -> Record:
        """The finished record; raises `UsageError` before the block is left."""
        if self._record is None:
            raise UsageError("the record is finished when the `with` block is left")
        return self._record

    @property
    def coverage(self) -> Coverage:
        """How many hosts were requested, and how many have each status; available with `record`."""
        return self.record.coverage

    @property
    def recording_error(self) -> str:
        """Why recording ended early, empty if it did not."""
        return self._recording_error or (self._recorder.broken if self._recorder else "")

    async def __aenter__(self) -> Self:
        self._enter_once()
        await self._begin()
        return self

    def _enter_once(self) -> None:
        """A second entry would wait for the first to end, or create a record that no one requested."""
        if self._entered:
            raise UsageError("a recording can be entered once; create another with `rollbook.record(...)`")
        self._entered = True

    async def _begin(self) -> None:
        """Create the record directory and start recording; returns when all hosts have returned their start facts."""
        settings, self._loop = self.settings, asyncio.get_running_loop()
        cwd = working_directory()  # before there is a directory without a record
        now = dt.datetime.now(dt.UTC)
        directory = self._directory = RecordDirectory.create(
            settings.results_dir.absolute(), settings.type, now, share=settings.share
        )
        about = {
            "type": settings.type,
            "stamp": directory.stamp,
            "argv": mask_command_line(self.argv),
            "cwd": str(cwd),
            "args": _masked(settings.args),
            "max_samples": settings.max_samples,
            "label": msgspec.to_builtins(settings.label),
            **({"push": mask_command_line([settings.push])[0]} if settings.push else {}),
        }
        try:
            if settings.push:
                await self._start_pushing(directory)
            self._recorder = await self._stack.enter_async_context(
                Recorder(
                    directory.path / "raw",
                    settings.hosts,
                    self._route,
                    Plan.of(catalogue.load()),
                    interval=settings.interval,
                    about=about,
                    timeout=settings.options.timeout,
                    fanout=settings.fanout,
                    fallback=self._fallback,
                    progress=self._progress,
                    budget_factor=settings.host_budget,
                )
            )
            self.socket = await self._stack.enter_async_context(listen(self._recorder.mark))
            await self._recorder.ready()
        except BaseException as error:
            await self._stack.aclose()
            if isinstance(error, Exception):  # failures of hosts are not raised: the recording never began
                self.discard()
            raise
        self._open = True

    async def _start_pushing(self, directory: RecordDirectory) -> None:
        """Start to push what will be in the journal; it ends after the journal, with the stack."""
        from rollbook.api.pushing import Pushing  # noqa: PLC0415 - most recordings do not push

        settings = self.settings
        labels = {"job": settings.label.name or settings.type, "record": f"{settings.type}/{directory.stamp}"}
        pushing = Pushing(directory.path / "raw", settings.push, labels, self.on_push_problem)
        self._pushing = await self._stack.enter_async_context(pushing)

    async def __aexit__(self, *exc: object) -> None:
        await self.end()
        await asyncio.to_thread(self.finish)

    async def end(self, *, facts: bool = True, seconds: float | None = None) -> None:
        """Stop recording, with end facts if wanted; the record is not finished yet.

        Each host has `seconds`, by default the time it had for its start facts. A journal that fails meanwhile is not
        raised: `recording_error` has the reason, and what was written stays.
        """
        self._open = False
        try:
            if self._recorder is not None:
                self._recorder.event("end facts", wanted=facts)
                await self._recorder.end(facts=facts, seconds=seconds)
        except RecordError as error:
            self._recording_error = str(error)
        if self._pushing is not None and seconds is not None:
            self._pushing.seconds = min(seconds, self._pushing.seconds)
        with contextlib.suppress(RecordError):
            await self._stack.aclose()

    def discard(self) -> None:
        """Remove the record directory: nothing worth a record happened."""
        if self._directory is not None:
            shutil.rmtree(self._directory.path, ignore_errors=True)

    def finish(self) -> None:
        """Write the record from what was recorded, and sign it."""
        from rollbook.api.finish import finish  # noqa: PLC0415 - DuckDB is not needed while hosts are recorded

        settings = self.settings
        self._record = finish(self.path, drop_raw=settings.drop_raw, report=settings.report)
        if settings.bundle_on_failure:
            self._take_bundle(self._record)
        if settings.sign is not None:
            signing.sign(self.path, settings.sign)

    def _take_bundle(self, record: Record) -> None:
        """Take an issue report if the run failed, and build the page again, which links it."""
        from rollbook.api.failure import DIRECTORY, affected_hosts, take_report  # noqa: PLC0415 - most runs do not fail
        from rollbook.report import write_report  # noqa: PLC0415

        settings = self.settings
        try:
            affected = affected_hosts(record, self.exit_code)
            if not affected:
                return
            self.on_bundle(affected)
            hosts = [host for host in settings.hosts if host.name in affected]
            self.bundle_error = take_report(record, hosts, settings.options, settings.fanout).problem
            self.bundle = record.path / DIRECTORY
            if settings.report:
                write_report(record, record.path / "report.html")
        except Exception as error:  # noqa: BLE001 - the record is complete without it
            self.bundle_error = str(error) or repr(error)
        finally:
            if (record.path / DIRECTORY).exists():  # a report that failed leaves files as well
                assert self._directory is not None
                self._directory.write_manifest()

    def finish_or_explain(self) -> None:
        """Write the record; if that fails, `finish_error` or `signing_error` has the reason and the journal stays."""
        try:
            self.finish()
        except Exception as error:  # noqa: BLE001 - the command's exit status must survive any of our errors
            reason = str(error) or repr(error)
            if self._record is None:
                self.finish_error = reason
            else:
                self.signing_error = reason

    def place(self) -> None:
        """Move the record to its place, before it is finished."""
        if self.settings.placement is not None and self._directory is not None:
            path = self.settings.placement.place(self._directory.path)
            self._directory = RecordDirectory(path, self._directory.kind, self._directory.stamp)

    def abandon(self) -> None:
        """Stop waiting for the record to be written, at the user's request: `rollbook recover` can finish it."""
        self._record, self.finish_error = None, INTERRUPTED

    def mark(self, name: str) -> None:
        """Start a phase, from any thread; every host is sampled immediately."""
        if not self._open:
            raise UsageError("a phase can only be marked inside the `with` block")
        assert self._recorder is not None
        assert self._loop is not None
        marked = asyncio.run_coroutine_threadsafe(self._recorder.mark(mark_name(name)), self._loop)
        if self._thread is not None:
            marked.result(10.0)

    def event(self, event: str, **more: object) -> None:
        """Write an event of the run into its journal."""
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
        in_thread(self.finish).result()

    def _leave(self) -> None:
        """End the thread after its remaining tasks had time to end."""
        assert self._loop is not None
        assert self._thread is not None
        asyncio.run_coroutine_threadsafe(_others_done(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def record(hosts: str | Sequence[str] = (), **options: Unpack[RecordingOptions]) -> Recording:
    """Record hosts while a block runs, `with` or `async with`; without hosts, this machine.

    `hosts` is a nodeset or a list of them; for the options see `RecordingOptions`. Raises `UsageError` for values that
    cannot be used.
    """
    return Recording(settings_of(hosts, **options))


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Call a function in another thread, which ends with the process.

    Python raises KeyboardInterrupt in the main thread only: the function is never interrupted in mid-write. A signal
    handler may raise while the main thread waits for the future, but not while it joins a thread: Python 3.11 then
    takes the thread for ended.
    """
    future: Future[T] = Future()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised by `result`
            future.set_exception(error)

    threading.Thread(target=call, name="rollbook-finish", daemon=True).start()
    return future


def _masked(args: dict[str, Any]) -> dict[str, Any]:
    """The user's options without secrets: those for launchers and ssh may hold some."""

    def mask(value: Any) -> Any:
        if isinstance(value, list):
            return [mask(item) for item in value]
        if not isinstance(value, str):
            return value
        # `SetEnv=API_TOKEN=…` of ssh is a setting whose value is a setting.
        name, equals, rest = value.partition("=")
        return mask_command_line([f"{name}={mask(rest)}" if equals else value])[0]

    return {name: mask(value) for name, value in args.items()}


async def _others_done() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=5.0)
