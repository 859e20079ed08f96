"""Contacts many hosts, to read a plan once or for another task: bounded fan-out, retries, a result for every host."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Coroutine, Sequence
from typing import Generic, NamedTuple, Protocol, TypedDict, TypeVar, Unpack

from rollbook.collect.backoff import busy_pauses
from rollbook.collect.file_limit import raise_limit
from rollbook.collect.session import Session
from rollbook.errors import Busy, HostStatus, TimedOut, TransportError
from rollbook.hosts import Host
from rollbook.protocol.plan import Plan
from rollbook.protocol.visit import Phase, Visit
from rollbook.records.hosts import HostResult
from rollbook.times import iso_time
from rollbook.transports.base import FANOUT, TIMEOUT, Route, Transport
from rollbook.transports.launcher import count_launched, launching

__all__ = [
    "INTERRUPTED", "Conclusion", "FanOut", "HostOutcome", "Progress", "Result", "conclude", "fan_out", "gather",
    "greet_and_read", "read_host", "result_of", "timeout_reason",
]  # fmt: skip

PINGS = 3  # each wakes six processes; only series need a more exact clock
LARGE_TEXT = 4 << 20  # bytes; real hosts have less


class HostOutcome(Protocol):
    """What the results of all tasks have in common. `attempts` lists the reasons of earlier attempts."""

    name: str
    status: HostStatus
    reason: str
    agent: str
    attempts: list[str]

    @property
    def gave_data(self) -> bool:
        """Whether the task was begun on the host, so that it must not be repeated by another transport."""


Result = TypeVar("Result", bound=HostOutcome)
Result_co = TypeVar("Result_co", bound=HostOutcome, covariant=True)


class Visitor(Protocol[Result_co]):
    """A task for one host at a time."""

    async def visit(
        self, host: Host, transport: Transport, timeout: float, stop: asyncio.Event
    ) -> tuple[Result_co, bool]:
        """Do the task on one host. Returns its result, and whether the host was busy and a retry makes sense."""

    def unstarted(self, host: Host, reason: str) -> Result_co:
        """The result of a host that was not contacted."""

    def script(self) -> bytes:
        """The orders for agents that cannot be sent any."""


Done_contra = TypeVar("Done_contra", bound=HostOutcome, contravariant=True)


class ProgressOf(Protocol[Done_contra]):
    """Called when a host is started and when it is done; must not raise."""

    def begun(self, host: Host) -> None:
        """The collector starts to connect to the host."""

    def done(self, result: Done_contra, /) -> None:
        """The host is finished, with or without success."""


Progress = ProgressOf[HostResult]


class FanOut(TypedDict, Generic[Result], total=False):
    """The options of `fan_out`."""

    timeout: float
    fanout: int
    progress: ProgressOf[Result] | None
    stop: asyncio.Event | None
    fallback: Route | None


class _Quiet:
    def begun(self, host: Host) -> None: ...
    def done(self, result: HostOutcome) -> None: ...


async def gather(
    hosts: Sequence[Host], route: Route, plan: Plan, **options: Unpack[FanOut[HostResult]]
) -> list[HostResult]:
    """Read the plan on all hosts; returns one result per host, in order. For the options see `fan_out`."""
    return await fan_out(hosts, route, _PlanVisitor(plan), **options)


class _PlanVisitor:
    """Reads a plan once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    async def visit(
        self, host: Host, transport: Transport, timeout: float, stop: asyncio.Event
    ) -> tuple[HostResult, bool]:
        return await read_host(host, transport, self._plan, timeout, stop)

    def unstarted(self, host: Host, reason: str) -> HostResult:
        return Visit(host, self._plan).result("now", "failed", reason)

    def script(self) -> bytes:
        return self._plan.orders() + (b"go\tnow\nthen\n" if self._plan.sources else b"") + b"stop\n"


async def fan_out(
    hosts: Sequence[Host],
    route: Route,
    visitor: Visitor[Result],
    *,
    timeout: float = TIMEOUT,
    fanout: int = FANOUT,
    progress: ProgressOf[Result] | None = None,
    stop: asyncio.Event | None = None,
    fallback: Route | None = None,
) -> list[Result]:
    """Visit all hosts, `fanout` at a time; returns one result per host, in order.

    `timeout` limits each host from the moment it is started; no host delays another. When `stop` is set, hosts in
    progress end with what they have sent so far, and the others fail as interrupted. Hosts that returned no data are
    retried with the transport of `fallback`; the first failure is listed in their attempts.
    """
    progress = progress or _Quiet()
    turns = asyncio.Semaphore(fanout)
    raise_limit(min(fanout, len(hosts)), count_launched(hosts, route))
    stop = stop or asyncio.Event()

    async def one(host: Host) -> Result:
        result = await with_retries(route, host)
        if fallback and not result.gave_data and not stop.is_set():
            before = [*result.attempts, f"{route(host).name}: {result.reason}"]
            result = await with_retries(fallback, host)
            result.attempts = before + result.attempts
        progress.done(result)
        return result

    async def with_retries(via: Route, host: Host) -> Result:
        attempts: list[str] = []
        refused: Result | None = None
        deadline: float | None = None
        pauses = busy_pauses()
        while True:
            async with turns:
                if stop.is_set():
                    return visitor.unstarted(host, "interrupted before it was started")
                if deadline is None:
                    deadline = time.monotonic() + timeout
                    progress.begun(host)
                result, busy = await visitor.visit(host, via(host), deadline - time.monotonic(), stop)
            if refused and result.status == "timed-out" and not result.agent:
                result = refused  # too little time was left for this attempt: keep the reason of the previous one
            pause = next(pauses)
            if not busy or time.monotonic() + pause > deadline:
                result.attempts = attempts
                return result
            attempts.append(result.reason)
            refused = result
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    async with launching(hosts, route, visitor.script()):
        return list(await asyncio.gather(*(one(host) for host in hosts)))


async def greet_and_read(session: Session, within: float | None = None) -> None:
    """Greet the agent, then read the session's plan once while the host's clock is measured.

    Raises `TimedOut` if the agent does not answer `within` these seconds.
    """
    try:
        async with asyncio.timeout(within):
            await session.greet()
    except TimeoutError:
        raise TimedOut(timeout_reason(session, within or 0.0)) from None
    clock = asyncio.create_task(session.measure_clock(PINGS))
    try:
        if session.plan.sources:
            await session.read_all("now")
        await clock
    finally:
        clock.cancel()


async def read_host(
    host: Host, transport: Transport, plan: Plan, timeout: float, stop: asyncio.Event
) -> tuple[HostResult, bool]:
    """Read the plan once on one host. Returns its result, and whether the host was busy and a retry makes sense."""
    began, at = time.monotonic(), dt.datetime.now(dt.UTC)
    session = Session(host, transport, plan)

    async def visit() -> None:
        async with session:
            await greet_and_read(session)
            await session.stop()

    ended = await conclude(session, visit(), timeout, stop)
    session.visit.lost = session.decoder.lost
    result = await result_of(session.visit, "now", ended.status, ended.reason)
    result.seconds = round(time.monotonic() - began, 4)
    result.collected_at = iso_time(at)
    return result, ended.busy


async def result_of(visit: Visit, phase: Phase, status: HostStatus, reason: str) -> HostResult:
    """The host's result. A hostile host may send text that takes long to parse: a thread does it, others go on."""
    if sum(len(reading.raw) for reading in visit.readings) < LARGE_TEXT:
        return visit.result(phase, status, reason)
    return await asyncio.to_thread(visit.result, phase, status, reason)


class Conclusion(NamedTuple):
    """How a session ended; `busy` means that the host refused because of its load and a retry makes sense."""

    status: HostStatus
    reason: str = ""
    busy: bool = False


INTERRUPTED = Conclusion("failed", "interrupted")


async def conclude(
    session: Session, visit: Coroutine[None, None, None], timeout: float | None, stop: asyncio.Event
) -> Conclusion:
    """Run what a session has to do until it is done, fails, or must end; no error is raised.

    A `timeout` of None is for a `visit` with its own limits.
    """
    work = asyncio.create_task(visit)
    stopped = asyncio.create_task(stop.wait())
    seconds = None if timeout is None else max(timeout, 0.0)
    try:
        await asyncio.wait([work, stopped], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            interrupted = stop.is_set()
            work.cancel()
            await asyncio.wait([work])
            return INTERRUPTED if interrupted else Conclusion("timed-out", timeout_reason(session, timeout or 0.0))
        work.result()
    except TransportError as error:
        return Conclusion(error.status, str(error), isinstance(error, Busy))
    except Exception as error:  # noqa: BLE001 - any error affects only this host
        return Conclusion("failed", f"unexpected: {error!r}")
    finally:
        stopped.cancel()
        work.cancel()
        await asyncio.wait([work])
    return Conclusion("complete")


def timeout_reason(session: Session, timeout: float) -> str:
    """Why a session was not finished in time."""
    within = f"within {round(timeout, 2):g} s"  # rounded: the remaining time is a moment less than the timeout
    if session.visit.hello:
        return f"not finished {within}"
    if session.decoder.noise:
        return f"no answer {within}; the host accepted the login, but its login shell hangs"
    return f"no answer {within}; is the host up, does its sshd answer?"
