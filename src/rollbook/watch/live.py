"""Live hosts: samples of the same streams as a recording, turned into metrics as they arrive; nothing is stored."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Unpack

from rollbook.collect.budget import Budget, Meter
from rollbook.collect.streams import StreamOptions, Streams
from rollbook.hosts import Host
from rollbook.metrics import catalogue as metrics
from rollbook.metrics.frames import HostFrames
from rollbook.metrics.live import FACTS, Values, sampled_sources
from rollbook.protocol.beats import Schedule
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.sources import catalogue
from rollbook.transports.base import Route
from rollbook.watch.board import Board

__all__ = ["Live"]

STOP_SECONDS = 2.0  # for agents to end
# Bytes of text, rows included, of one host: it is processed here as it arrives, and must not delay other hosts or keys.
# A machine with 500 processors and 100 disks has 100 KiB and 600 rows at a beat.
TEXT_PER_BEAT, TEXT_BURST = 2 << 20, 4 << 20


class Live:
    """Feeds a board from hosts while its `running` block lasts."""

    def __init__(
        self,
        hosts: Sequence[Host],
        route: Route,
        *,
        interval: float,
        **options: Unpack[StreamOptions],
    ) -> None:
        self.board = Board([host.name for host in hosts], interval)
        self.ended = False
        self.place: tuple[int, int] | None = None
        self._changed = asyncio.Event()
        plan = Plan.of([catalogue.source(name) for name in (*sampled_sources(metrics.watched()), *FACTS)])
        budget = dataclasses.replace(
            Budget.of(plan, interval),
            inflated_per_second=round(TEXT_PER_BEAT / min(1.0, interval)),
            burst_inflated=TEXT_BURST,
        )
        self._hosts = [_Watched(host.name, plan, self.board, Meter(budget)) for host in hosts]
        self._streams = Streams(self, hosts, route, plan, schedule=Schedule(round(interval * 1e9)), **options)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the board up to date."""
        async with self._streams:
            ticking = asyncio.create_task(self._tick())
            try:
                yield
            finally:
                ticking.cancel()
                await self._streams.end(facts=False, seconds=STOP_SECONDS)
                if ticking.done() and not ticking.cancelled():
                    ticking.result()

    async def settle(self) -> None:
        """Watch until every host has rates or cannot be reached, at most for the timeout and a few beats."""
        async with self.running():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._streams.timeout + 4 * self.board.interval):
                    while any(host.state != "lost" and host.beats < 2 for host in self.board.hosts.values()):
                        self._changed.clear()
                        await self._changed.wait()
            self.board.tick(time.time_ns())

    def pause(self, paused: bool) -> None:
        """Do nothing: live hosts cannot be paused."""

    def seek(self, beat: int) -> None:
        """Do nothing: no earlier beats are stored."""

    def devices(self, name: str) -> dict[str, Values]:
        """The metrics of a host's devices."""
        return self.board.hosts[name].devices

    def frame(self, host: int, arrived_ns: int, frame: Frame) -> None:
        """Take a frame of that host."""
        del arrived_ns
        self._hosts[host].frame(frame)
        self._changed.set()

    def event(self, event: dict[str, Any], host: int | None = None) -> None:
        """Take an event of that host."""
        if host is not None:
            self._hosts[host].event(event)
            self._changed.set()

    async def _tick(self) -> None:
        """Tick half an interval after each beat: all samples that are in time have arrived by then."""
        step = self.board.interval
        while True:
            await asyncio.sleep(step - (time.time() - step / 2) % step)
            self.board.tick(time.time_ns())


class _Watched:
    """One host: takes its frames, puts its values on the board."""

    def __init__(self, name: str, plan: Plan, board: Board, meter: Meter) -> None:
        self.name, self._board = name, board
        self._frames = HostFrames(plan, board.interval, admit=meter.inflate)
        self._offset = 0

    def event(self, event: dict[str, Any]) -> None:
        """Take an event of the host's stream."""
        if event["event"] == "clock":
            self._offset = event["offset_ns"]
        elif event["event"] == "connected":
            self._frames.connected(event["hello"])
            self._board.hosts[self.name].method = event["method"]
            self._board.slower[self.name] = self._frames.step
        elif event["event"] == "lost":
            self._board.lost(self.name, event["status"], event["reason"], time.time_ns())

    def frame(self, frame: Frame) -> None:
        """Take a frame; a complete beat is shown. Raises `AgentFailed` if the host sends too much text."""
        beat = self._frames.frame(frame, frame.wall + self._offset)
        if beat is not None:
            self._board.beat(self.name, beat, self._frames.values, self._frames.devices)
