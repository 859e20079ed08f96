"""One host during a recording: connected, sampled, and reconnected after a loss."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

from rollbook.collect.backoff import busy_pauses, growing_pauses
from rollbook.collect.budget import Budget, Meter
from rollbook.collect.gather import Progress, result_of
from rollbook.collect.session import SILENCE, Session
from rollbook.errors import AgentFailed, Busy, HostStatus, RecordError, TimedOut, TransportError
from rollbook.hosts import Host
from rollbook.protocol.beats import Schedule
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.visit import Visit
from rollbook.transports.base import Route

__all__ = ["HostStream", "Share", "Sink"]

CHECK_EVERY = 1.0
CLOCK_EVERY, CLOCK_PINGS = 30.0, 4
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # after a loss


class Sink(Protocol):
    """The destination of frames and events: a journal or a live view. May raise `RecordError`."""

    def frame(self, host: int, arrived_ns: int, frame: Frame) -> None:
        """A frame of the host with that index, and its arrival time."""

    def event(self, event: dict[str, Any], host: int | None = None) -> None:
        """Something that has just happened to the host."""


@dataclasses.dataclass(frozen=True)
class Share:
    """A host's share of a recording: its index, and the settings that all hosts have in common."""

    number: int
    plan: Plan
    sink: Sink
    schedule: Schedule
    timeout: float
    logins: asyncio.Semaphore
    budget: Budget
    progress: Progress | None = None  # called for the start facts only


class HostStream:
    """Sends one host's frames to the sink until `end`.

    `ready` is set when the start facts have arrived or the host failed to send them in time; a host that connects later
    sends them then. `state` is connecting, sampling, lost (with `reason`) or ended.
    """

    def __init__(self, share: Share, host: Host, routes: Sequence[Route]) -> None:
        self.share, self.host = share, host
        self._transports = [route(host) for route in routes]
        self._meter = Meter(share.budget)
        self.state, self.reason = "connecting", ""
        self._status: HostStatus = "complete"
        self._latest = Visit(host, share.plan)
        self.ready = asyncio.Event()
        self._leaving = self._facts_requested = False
        self._deadline: float | None = None
        self._session: Session | None = None
        self._task = asyncio.create_task(self._run())

    async def mark(self, name: str) -> None:
        """Take a sample at the edge of a phase."""
        if self._session is not None and self.share.schedule.interval_ns:
            await self._session.mark(name)

    async def end(self, *, facts: bool, seconds: float) -> None:
        """Read the end facts, stop the agent, and end, within `seconds` whatever the host does."""
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

    async def _run(self) -> None:
        """Reconnect to the host again and again, with growing pauses between consecutive failures."""
        pauses = growing_pauses(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            began = time.monotonic()
            try:
                await self._visit_by_any_transport()
            except RecordError:  # the journal cannot be written; the recorder reports that
                return
            except Exception as error:  # noqa: BLE001 - any error affects only this host
                if self._leaving:
                    return
                self._lost(error if isinstance(error, TransportError) else AgentFailed(f"unexpected: {error!r}"))
            finally:
                self._session = None
                await self._set_ready()
            if time.monotonic() - began > LONGEST_PAUSE:
                pauses = growing_pauses(FIRST_PAUSE, LONGEST_PAUSE)
            await asyncio.sleep(next(pauses))

    async def _visit_by_any_transport(self) -> None:
        """Use the first transport that delivers the start facts, and keep it. Raises the reason of the loss."""
        while True:
            self._deadline = None
            try:
                return await self._visit_with_retries()
            except TransportError as error:
                if self.ready.is_set() or self._leaving or len(self._transports) == 1:
                    raise
                self._lost(error)
                del self._transports[0]
                self._facts_requested = False

    async def _visit_with_retries(self) -> None:
        """Visit the host; before the start facts, retry a busy sshd within the timeout."""
        pauses, refused = busy_pauses(), None
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
                if refused is None or self._facts_requested:
                    raise
                raise refused from None  # too little time was left for this attempt: keep the previous reason
            await asyncio.sleep(pause)

    async def _set_ready(self) -> None:
        """Report once that the start facts have arrived or will not arrive in time."""
        if self.ready.is_set():
            return
        self.ready.set()
        if self.share.progress:
            self.share.progress.done(await result_of(self._latest, "start", self._status, self.reason))

    def _lost(self, error: TransportError) -> None:
        self.state, self.reason, self._status = "lost", str(error), error.status
        self._event("lost", reason=self.reason, status=error.status, method=self._transports[0].name)

    async def _visit(self) -> None:
        """One connection, from login to loss. Raises the reason of the loss."""
        transport = self._transports[0]
        session = Session(self.host, transport, self.share.plan, self._forward, self._meter)
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
                if not self._facts_requested:
                    self._facts_requested = True  # once: a source that hangs must not prevent sampling for ever
                    await session.read_all("start")
            if self.share.schedule.interval_ns:
                await session.sample(self.share.schedule)
            self._session, self.state, self.reason, self._status = session, "sampling", "", "complete"
            await self._set_ready()
            work = (self._watch_silence(session), self._measure_clock(session), session.wait_for_loss())
            tasks = [asyncio.create_task(each) for each in work]
            for task in tasks:
                stack.callback(task.cancel)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    @property
    def _until(self) -> float:
        """The deadline for login and start facts together; the timeout starts at the first access."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self.share.timeout
        return self._deadline

    @property
    def _silence(self) -> float:
        """Seconds without any frame after which a host is lost."""
        return SILENCE + 2 * self.share.schedule.at(time.time_ns()) / 1e9

    async def _watch_silence(self, session: Session) -> None:
        """Raise `TimedOut` after too long without a frame."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(CHECK_EVERY)
            now = time.monotonic()
            if now - before > self._silence / 2:
                session.heard_at = now  # this process was suspended; frames of the host are still unread
            if now - session.heard_at > self._silence:
                raise TimedOut(f"silent for {self._silence:.0f} s")

    async def _measure_clock(self, session: Session) -> None:
        """Measure the clock regularly, and after some silence: the stand-in sends frames only when pinged.

        Pongs may be lost, or late behind other frames. That does not make a host silent: the clock is measured again.
        """
        measured = time.monotonic()
        while True:
            await asyncio.sleep(CHECK_EVERY)
            now = time.monotonic()
            if now - measured > CLOCK_EVERY or now - max(measured, session.heard_at) > self._silence / 2:
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

    def _forward(self, arrived: int, frame: Frame) -> None:
        self.share.sink.frame(self.share.number, arrived, frame)

    def _event(self, event: str, **more: object) -> None:
        with contextlib.suppress(RecordError):
            self.share.sink.event({"event": event, **more}, host=self.share.number)


@contextlib.asynccontextmanager
async def _limit(until: float, why: str) -> AsyncIterator[None]:
    """A deadline on the monotonic clock; raises `TimedOut` with the reason."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError:
        raise TimedOut(why) from None
