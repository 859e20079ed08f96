"""A recording: one stream per host into one journal, from before the run until after it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from rollbook.collect.streams import StreamOptions, Streams
from rollbook.errors import RecordError
from rollbook.hosts import Host
from rollbook.journal.writer import Journal
from rollbook.protocol.beats import Schedule
from rollbook.protocol.plan import Plan
from rollbook.transports.base import Route

__all__ = ["Recorder"]

FLUSH_EVERY, SYNC_EVERY = 0.5, 2.0  # seconds; the most that a killed collector, or a power failure, can lose


class Recorder:
    """Use as `async with Recorder(...)`; then `ready`, `mark`, `event`, and `end` before leaving.

    The journal is flushed every half second and synced every two. If it cannot be written, for example because the disk
    is full, the recording ends, `broken` holds the reason, and the wrapped command continues; what was written stays
    valid. For the options see `Streams`.
    """

    def __init__(
        self,
        raw: Path,
        hosts: Sequence[Host],
        route: Route,
        plan: Plan,
        *,
        interval: float | None,  # seconds; 0 for facts alone, None for one that grows with the run
        about: dict[str, Any],
        **options: Unpack[StreamOptions],
    ) -> None:
        self.broken = ""
        now = time.time_ns()
        schedule = Schedule.adaptive(now) if interval is None else Schedule(round(interval * 1e9))
        begin = {
            "hosts": [host.name for host in hosts],
            "slots": {host.name: host.slots for host in hosts if host.slots is not None},
            "users": {host.name: host.user for host in hosts if host.user is not None},
            "sources": [source.name for source in plan.sources],
            "interval_ns": schedule.interval_ns,
            "doubles_ns": list(schedule.doubles),
            "started_ns": now,
            **about,
        }
        self.journal = Journal(raw, begin)
        self._streams = Streams(self.journal, hosts, route, plan, schedule=schedule, **options)
        self._writer: asyncio.Task[None] | None = None
        self._ended = False

    async def __aenter__(self) -> Self:
        await self._streams.__aenter__()
        self._writer = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._writer is not None
        try:  # even if cancelled, launchers are ended, and the journal is closed and unlocked
            try:
                await self.end(facts=False, seconds=0.0)
            finally:
                await self._streams.__aexit__(None, None, None)
        finally:
            self._writer.cancel()
            await asyncio.wait([self._writer])
            with contextlib.suppress(RecordError):
                self.journal.close()

    async def ready(self) -> None:
        """Wait until every host has sent its start facts or failed.

        The timeout of a host starts when it is contacted, and again with the fallback.
        """
        await self._streams.ready()
        self.event("ready")
        with contextlib.suppress(RecordError):
            self.journal.begin()

    def mark(self, name: str) -> Coroutine[Any, Any, None]:
        """Start a phase: written to the journal at once, from any thread; await the result to sample every host."""
        self.event("phase", name=name)
        return self._streams.mark(name)

    def event(self, event: str, **more: object) -> None:
        """Write an event of the run to the journal."""
        with contextlib.suppress(RecordError):
            self.journal.event({"event": event, **more})

    async def end(self, *, facts: bool, seconds: float | None = None) -> None:
        """End all streams; with `facts`, read the end facts first. May be called again after it was cancelled."""
        await self._streams.end(facts=facts and not self.broken, seconds=seconds)
        if not self._ended:
            self._ended = True
            self.event("end")

    async def _write(self) -> None:
        synced = time.monotonic()
        try:
            while True:
                await asyncio.sleep(FLUSH_EVERY)
                self.journal.flush()
                if time.monotonic() - synced > SYNC_EVERY:
                    synced = time.monotonic()
                    # In a thread: a slow disk must not block the streams.
                    await asyncio.to_thread(self.journal.sync)
        except RecordError as error:
            self.broken = str(error)
            await self.end(facts=False, seconds=0.0)
