"""One host for the length of a recording: connected, sampled, and connected again when it was lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from rollbook.collect.frames import Frame
from rollbook.collect.plan import Plan
from rollbook.collect.session import Session
from rollbook.errors import RecordError, TimedOut, TransportError
from rollbook.hosts import Host
from rollbook.transports.base import Transport

__all__ = ["HostStream", "Share", "Sink"]

SILENCE = 30.0  # an agent says something every 5 s; one that does not is lost, unless its machine is just busy
CLOCK_EVERY, CLOCK_PINGS = 30.0, 4
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0


class Sink(Protocol):
    """Where frames and events of hosts go: a journal, or somebody who watches. May raise `RecordError`."""

    def frame(self, host: int, arrived_ns: int, frame: Frame) -> None:
        """A frame of that host, which arrived then."""

    def event(self, event: dict[str, Any], host: int | None = None) -> None:
        """Something that happened to the host, now."""


@dataclasses.dataclass(frozen=True)
class Share:
    """A host's part in a recording: its number, and what all hosts have in common."""

    number: int
    plan: Plan
    sink: Sink
    interval_ns: int
    timeout: float
    logins: asyncio.Semaphore


class HostStream:
    """Keeps one host's frames flowing into the sink until `end`.

    `ready` is set when the start facts are in or the host could not give them; `state` is what a person would say
    of it now: connecting, sampling, lost (with `reason`), ended.
    """

    def __init__(self, share: Share, host: Host, ways: Sequence[Callable[[Host], Transport]]) -> None:
        self.share, self.host = share, host
        self._ways = [way(host) for way in ways]
        self.state, self.reason = "connecting", ""
        self.ready = asyncio.Event()
        self._leaving = False
        self._session: Session | None = None
        self._task = asyncio.create_task(self._keep())

    async def mark(self, name: str) -> None:
        """Force a sample at the edge of a phase."""
        if self._session is not None and self.share.interval_ns:
            await self._session.mark(name)

    async def end(self, *, facts: bool, seconds: float) -> None:
        """Read the end facts, let the agent go, and stop; whatever the host does, within the time given."""
        session, self._leaving = self._session, True
        if session is not None:
            with contextlib.suppress(TransportError, TimeoutError):
                async with asyncio.timeout(seconds):
                    if facts:
                        await session.read_all("end")
                    await session.stop()
        self.state = "ended"
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep(self) -> None:
        """Visit the host again and again, waiting longer after each failure in a row."""
        wait = FIRST_WAIT
        while True:
            began = time.monotonic()
            try:
                await self._by_some_way()
            except TransportError as error:
                if self._leaving:
                    return
                self._lost(error)
            finally:
                self._session = None
                self.ready.set()
            if time.monotonic() - began > LONGEST_WAIT:
                wait = FIRST_WAIT
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))  # noqa: S311 - spreads logins, guards nothing
            wait = min(2 * wait, LONGEST_WAIT)

    async def _by_some_way(self) -> None:
        """Visit by the first way that brings the start facts; it stays the way. Raises why it ended."""
        while True:
            try:
                return await self._visit()
            except TransportError as error:
                if self.ready.is_set() or self._leaving or len(self._ways) == 1:
                    raise
                self._lost(error)
                del self._ways[0]

    def _lost(self, error: TransportError) -> None:
        self.state, self.reason = "lost", str(error)
        self._event("lost", reason=self.reason, status=error.status, method=self._ways[0].name)

    async def _visit(self) -> None:
        """One connection, from login to loss. Raises why it ended."""
        transport = self._ways[0]
        session = Session(self.host, transport, self.share.plan, self._heard)
        async with contextlib.AsyncExitStack() as stack:
            async with self.share.logins, _limit(self.share.timeout, "no answer"):
                await stack.enter_async_context(session)
                await session.greet()
            self._event("connected", hello=session.visit.hello, method=transport.name)
            async with _limit(self.share.timeout, "the start facts were not finished"):
                await self._clock(session, 2 * CLOCK_PINGS)
                if not self.ready.is_set():
                    await session.read_all("start")
            if self.share.interval_ns:
                await session.sample(self.share.interval_ns)
            self._session, self.state, self.reason = session, "sampling", ""
            self.ready.set()
            watching = asyncio.create_task(self._watch(session))
            stack.callback(watching.cancel)
            gone = asyncio.create_task(session.lasting())
            stack.callback(gone.cancel)
            done, _ = await asyncio.wait([watching, gone], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    async def _watch(self, session: Session) -> None:
        """Notice silence; measure the clock from time to time."""
        silence = SILENCE + 2 * self.share.interval_ns / 1e9
        measured = time.monotonic()
        while True:
            before = time.monotonic()
            await asyncio.sleep(1.0)
            if time.monotonic() - before > silence / 2:
                session.heard = time.monotonic()  # we were stopped ourselves; what the host said still waits
            if time.monotonic() - session.heard > silence:
                raise TimedOut(f"silent for {silence:.0f} s")
            if time.monotonic() - measured > CLOCK_EVERY:
                measured = time.monotonic()
                async with _limit(silence, "no answer to pings"):
                    await self._clock(session, CLOCK_PINGS)

    async def _clock(self, session: Session, pings: int) -> None:
        clock = await session.measure_clock(pings)
        if clock is None:
            return
        self._event("clock", offset_ns=clock.offset_ns, bound_ns=clock.bound_ns, round_trip_ns=clock.round_trip_ns)
        await session.correct(clock)

    def _heard(self, arrived: int, frame: Frame) -> None:
        self.share.sink.frame(self.share.number, arrived, frame)

    def _event(self, event: str, **more: object) -> None:
        with contextlib.suppress(RecordError):
            self.share.sink.event({"event": event, **more}, host=self.share.number)


@contextlib.asynccontextmanager
async def _limit(seconds: float, what: str) -> AsyncIterator[None]:
    """A time limit whose excess is the host's failure."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TimedOut(f"{what} within {seconds:.0f} s") from None
