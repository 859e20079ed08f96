"""Hosts watched live: the streams of a recording, kept nowhere, their samples turned into rates as they come."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from rollbook.collect.streams import Streams
from rollbook.errors import ParseError, ProtocolError
from rollbook.hosts import Host
from rollbook.metrics.live import FACTS, SAMPLED, HostRates, Values
from rollbook.protocol.beats import shell_step
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.readings import READABLE, parse_facts, read_frame, split_pages
from rollbook.protocol.samples import Unpacker
from rollbook.sources import catalogue
from rollbook.transports.base import Transport
from rollbook.watch.board import Board

__all__ = ["Live"]

GOODBYE = 2.0  # seconds that agents get to leave


class Live:
    """Feeds a board from hosts while its `running` block lasts."""

    def __init__(
        self,
        hosts: Sequence[Host],
        route: Callable[[Host], Transport],
        *,
        interval: float,
        timeout: float = 60.0,
        fanout: int = 64,
        fallback: Callable[[Host], Transport] | None = None,
    ) -> None:
        self.board = Board([host.name for host in hosts], interval)
        self.ended = False
        self.place: tuple[int, int] | None = None
        self._changed = asyncio.Event()
        plan = Plan.of([catalogue.source(name) for name in (*SAMPLED, *FACTS)])
        self._hosts = [_Watched(host.name, plan, self.board) for host in hosts]
        self._streams = Streams(
            self, hosts, route, plan, interval=interval, timeout=timeout, fanout=fanout, fallback=fallback
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the board up to date."""
        async with self._streams:
            ticking = asyncio.create_task(self._tick())
            try:
                yield
            finally:
                ticking.cancel()
                await self._streams.end(facts=False, seconds=GOODBYE)
                if ticking.done() and not ticking.cancelled():
                    ticking.result()

    async def settle(self) -> None:
        """Watch until every host has rates or cannot be reached; whatever hosts do, no longer than they may take."""
        async with self.running():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._streams.timeout + 4 * self.board.interval):
                    while any(host.state != "lost" and host.beats < 2 for host in self.board.hosts.values()):
                        self._changed.clear()
                        await self._changed.wait()
            self.board.tick(time.time_ns())

    def hold(self, held: bool) -> None:
        """Hosts go on, whoever looks."""

    def seek(self, beat: int) -> None:
        """Nothing is kept of live hosts."""

    def devices(self, name: str) -> dict[str, Values]:
        """The rates of a host's devices."""
        return self.board.hosts[name].devices

    def frame(self, host: int, arrived_ns: int, frame: Frame) -> None:
        """A frame of that host."""
        del arrived_ns
        self._hosts[host].frame(frame)
        self._changed.set()

    def event(self, event: dict[str, Any], host: int | None = None) -> None:
        """Something that happened to a host."""
        if host is not None:
            self._hosts[host].event(event)
            self._changed.set()

    async def _tick(self) -> None:
        """Once per interval, half of one after the beat: all that were in time are in then."""
        step = self.board.interval
        while True:
            await asyncio.sleep(step - (time.time() - step / 2) % step)
            self.board.tick(time.time_ns())


class _Watched:
    """One host: its frames in, its values on the board."""

    def __init__(self, name: str, plan: Plan, board: Board) -> None:
        self.name, self._plan, self._board = name, plan, board
        self._rates = HostRates(board.interval)
        self._unpacker = Unpacker(plan)
        self._found: dict[int, Any] = {}
        self._seq, self._offset, self._last = -1, 0, -1
        self._ends = max(number for number, source in enumerate(plan.sources) if source.every == 1)

    def event(self, event: dict[str, Any]) -> None:
        """What the stream says of the host."""
        if event["event"] == "clock":
            self._offset = event["offset_ns"]
        elif event["event"] == "connected":
            self._board.hosts[self.name].method = event["method"]
            self._rates.least = shell_step(self._board.interval) if event["hello"].get("kind") == "sh" else 0.0
            self._board.slower[self.name] = max(self._board.interval, self._rates.least)
            self._unpacker.restart()
            self._seq = -1
        elif event["event"] == "lost":
            self._board.lost(self.name, event["status"], event["reason"], time.time_ns())

    def frame(self, frame: Frame) -> None:
        """A sample, a fact, or something else, which is passed over; content that is none costs a beat."""
        if frame.seq != self._seq + 1:  # what is missing may have been a sample, and those after it need it
            self._unpacker.restart()
        self._seq, ts = frame.seq, frame.wall + self._offset
        try:
            if frame.kind == "S":
                self._rates.begin()
                for sample in self._unpacker.beat(frame.payload, ts, frame.mono):
                    self._take(sample.source, sample.body, ts, sample.mono)
                self._show(ts)
            elif frame.kind in "RZ":
                self._reading(frame, ts)
        except ProtocolError:
            self._unpacker.restart()

    def _reading(self, frame: Frame, ts: int) -> None:
        """A fact, or one source of a sample of the stand-in, which sends them one by one in the order of the plan.

        Its beat is complete with the last source that every beat has.
        """
        reading = read_frame(frame, self._plan)
        if reading.phase != "sample":
            fact, _ = parse_facts(reading)
            if reading.source.name in FACTS and fact is not None:
                self._rates.learn(reading.source.name, fact)
            return
        number = self._plan.sources.index(reading.source)
        if number <= self._last:
            self._rates.begin()
        self._last = number
        self._take(number, reading.raw, ts, frame.mono)
        if number == self._ends:
            self._show(ts)

    def _take(self, number: int, body: bytes | None, ts: int, mono: int) -> None:
        """One source of a sample; without a body it is as it was."""
        source = self._plan.sources[number]
        if body is not None:
            found = split_pages(body)
            pages = {
                path: data.decode("utf-8", "backslashreplace") for path, status, data in found if status in READABLE
            }
            try:
                self._found[number] = source.parse(pages) if pages else None
            except ParseError:
                self._found[number] = None
        if (said := self._found.get(number)) is not None:
            self._rates.take(source.name, said, ts, mono)

    def _show(self, ts: int) -> None:
        self._rates.end(ts)
        self._board.beat(self.name, ts, self._rates.values, self._rates.devices)
