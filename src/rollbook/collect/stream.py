"""One host for the length of a recording: connected, sampled, and connected again when it was lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

from rollbook.collect.backoff import growing
from rollbook.collect.gather import Progress
from rollbook.collect.session import Session
from rollbook.errors import AgentFailed, Busy, HostStatus, RecordError, TimedOut, TransportError
from rollbook.hosts import Host
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.visit import Visit
from rollbook.transports.base import Transport

__all__ = ["HostStream", "Share", "Sink"]

SILENCE = 30.0  # an agent says something every 5 s, its stand-in when asked; one that does not is lost
LOOK_EVERY = 1.0
CLOCK_EVERY, CLOCK_PINGS = 30.0, 4
FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0
FIRST_BUSY, LONGEST_BUSY = 0.25, 8.0  # while the start facts are waited for


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
    progress: Progress | None = None  # told of the start facts alone


class HostStream:
    """Keeps one host's frames flowing into the sink until `end`.

    `ready` is set when the start facts are in or the host could not give them within its time; a host that comes later
    gives them then. `state` is what a person would say of it now: connecting, sampling, lost (with `reason`), ended.
    """

    def __init__(self, share: Share, host: Host, ways: Sequence[Callable[[Host], Transport]]) -> None:
        self.share, self.host = share, host
        self._ways = [way(host) for way in ways]
        self.state, self.reason = "connecting", ""
        self._status: HostStatus = "complete"
        self._latest = Visit(host, share.plan)
        self.ready = asyncio.Event()
        self._leaving = self._asked = False
        self._deadline: float | None = None
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
            with contextlib.suppress(TransportError, RecordError, TimeoutError):
                async with asyncio.timeout(seconds):
                    if facts:
                        await session.read_all("end")
                    await session.stop()
        self.state = "ended"
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep(self) -> None:
        """Visit the host again and again, waiting longer after each failure in a row."""
        waits = growing(FIRST_WAIT, LONGEST_WAIT)
        while True:
            began = time.monotonic()
            try:
                await self._by_some_way()
            except RecordError:  # nobody is there to keep what the host says; the recorder says so
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is this host's and costs no other
                if self._leaving:
                    return
                self._lost(error if isinstance(error, TransportError) else AgentFailed(f"unexpected: {error!r}"))
            finally:
                self._session = None
                self._started()
            if time.monotonic() - began > LONGEST_WAIT:
                waits = growing(FIRST_WAIT, LONGEST_WAIT)
            await asyncio.sleep(next(waits))

    async def _by_some_way(self) -> None:
        """Visit by the first way that brings the start facts; it stays the way. Raises why it ended."""
        while True:
            self._deadline = None
            try:
                return await self._insistent()
            except TransportError as error:
                if self.ready.is_set() or self._leaving or len(self._ways) == 1:
                    raise
                self._lost(error)
                del self._ways[0]
                self._asked = False

    async def _insistent(self) -> None:
        """Visit; one that a busy sshd turns away at the start is tried again while there is time."""
        pauses, refused = growing(FIRST_BUSY, LONGEST_BUSY), None
        while True:
            try:
                return await self._visit()
            except Busy as error:
                pause = next(pauses)
                if self.ready.is_set() or self._leaving or time.monotonic() + pause > self._until:
                    raise
                refused = error
                self._event("busy", reason=str(error))
            except TimedOut:
                if refused is None or self._asked:
                    raise
                raise refused from None  # too little time was left for this try: the answer before it stands
            await asyncio.sleep(pause)

    def _started(self) -> None:
        """The start facts are in, or will not come in time; said once."""
        if self.ready.is_set():
            return
        self.ready.set()
        if self.share.progress:
            self.share.progress.done(self._latest.record("start", self._status, self.reason))

    def _lost(self, error: TransportError) -> None:
        self.state, self.reason, self._status = "lost", str(error), error.status
        self._event("lost", reason=self.reason, status=error.status, method=self._ways[0].name)

    async def _visit(self) -> None:
        """One connection, from login to loss. Raises why it ended."""
        transport = self._ways[0]
        session = Session(self.host, transport, self.share.plan, self._heard)
        self._latest = session.visit
        within = f"within {self.share.timeout:g} s"
        async with contextlib.AsyncExitStack() as stack:
            async with self.share.logins, _limit(self._until, f"no answer {within}"):
                if self.share.progress and not self.ready.is_set():
                    self.share.progress.begun(self.host)
                await stack.enter_async_context(session)
                await session.greet()
            self._event("connected", hello=session.visit.hello, method=transport.name)
            async with _limit(self._until, f"the start facts were not finished {within}"):
                await self._clock(session, 2 * CLOCK_PINGS)
                if not self._asked:
                    self._asked = True  # once: a source that hangs must not keep the host from being sampled
                    await session.read_all("start")
            if self.share.interval_ns:
                await session.sample(self.share.interval_ns)
            self._session, self.state, self.reason, self._status = session, "sampling", "", "complete"
            self._started()
            beside = [asyncio.create_task(work) for work in (self._watch(session), self._measure(session))]
            gone = asyncio.create_task(session.lasting())
            for task in (*beside, gone):
                stack.callback(task.cancel)
            done, _ = await asyncio.wait([*beside, gone], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    @property
    def _until(self) -> float:
        """When the time of login and start facts together is up; it begins to run when it is first asked for."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self.share.timeout
        return self._deadline

    @property
    def _silence(self) -> float:
        """Seconds after which a host that said nothing at all is given up."""
        return SILENCE + 2 * self.share.interval_ns / 1e9

    async def _watch(self, session: Session) -> None:
        """Notice silence."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(LOOK_EVERY)
            now = time.monotonic()
            if now - before > self._silence / 2:
                session.heard = now  # we were stopped ourselves; what the host said still waits
            if now - session.heard > self._silence:
                raise TimedOut(f"silent for {self._silence:.0f} s")

    async def _measure(self, session: Session) -> None:
        """Measure the clock from time to time, and where nothing was heard for long: the host may have to be asked.

        Pongs may be lost, or come late behind much else. That makes no host silent: it is asked anew.
        """
        measured = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = time.monotonic()
            if now - measured > CLOCK_EVERY or now - max(measured, session.heard) > self._silence / 2:
                measured = now
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOCK_EVERY):
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
async def _limit(until: float, why: str) -> AsyncIterator[None]:
    """A time limit, by the monotonic clock, whose excess is the host's failure."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError:
        raise TimedOut(why) from None
