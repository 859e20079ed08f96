"""A plan run over many hosts: bounded fan-out, a deadline for each host, and a record of every host asked for."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rollbook.collect.backoff import growing
from rollbook.collect.file_limit import make_room
from rollbook.collect.session import Session
from rollbook.errors import Busy, HostStatus, TransportError
from rollbook.hosts import Host
from rollbook.protocol.plan import Plan
from rollbook.protocol.visit import Visit
from rollbook.records.hosts import HostResult
from rollbook.times import iso_time
from rollbook.transports.base import Transport
from rollbook.transports.launcher import launched, launching

__all__ = ["Progress", "gather", "look_at"]

FIRST_WAIT, LONGEST_WAIT = 0.25, 8.0
PINGS = 3  # each wakes six processes on the way; only series need a closer clock
Route = Callable[[Host], Transport]


class Progress(Protocol):
    """Told as hosts are begun and done; a view of the run, never its keeper."""

    def begun(self, host: Host) -> None:
        """A connection to the host is being made."""

    def done(self, record: HostResult) -> None:
        """The host is finished, well or not."""


class _Quiet:
    def begun(self, host: Host) -> None: ...
    def done(self, record: HostResult) -> None: ...


async def gather(
    hosts: Sequence[Host],
    route: Route,
    plan: Plan,
    *,
    timeout: float = 60.0,
    fanout: int = 64,
    progress: Progress | None = None,
    stop: asyncio.Event | None = None,
    fallback: Route | None = None,
) -> list[HostResult]:
    """Look at all hosts, `fanout` at a time; one record for each, in the order asked.

    No host takes longer than `timeout` from its turn on, and none costs another. When `stop` is set, hosts under way
    are ended with what they gave so far, and the rest are recorded as not asked. Hosts that gave nothing are tried
    once more by way of `fallback`; what failed before is in their attempts.
    """
    progress = progress or _Quiet()
    turns = asyncio.Semaphore(fanout)
    make_room(min(fanout, len(hosts)), launched(hosts, route))
    stop = stop or asyncio.Event()

    async def one(host: Host) -> HostResult:
        record = await along(route, host)
        if fallback and not record.gave_data and not stop.is_set():
            before = [*record.attempts, f"{route(host).name}: {record.reason}"]
            record = await along(fallback, host)
            record.attempts = before + record.attempts
        progress.done(record)
        return record

    async def along(way: Route, host: Host) -> HostResult:
        attempts: list[str] = []
        refused: HostResult | None = None
        deadline: float | None = None
        pauses = growing(FIRST_WAIT, LONGEST_WAIT)
        while True:
            async with turns:
                if stop.is_set():
                    return Visit(host, plan).record("now", "failed", "interrupted before its turn")
                if deadline is None:
                    deadline = time.monotonic() + timeout
                    progress.begun(host)
                record, busy = await look_at(host, way(host), plan, deadline - time.monotonic(), stop)
            if refused and record.status == "timed-out" and not record.agent:
                record = refused  # too little time was left for this try: the answer before it stands
            pause = next(pauses)
            if not busy or time.monotonic() + pause > deadline:
                record.attempts = attempts
                return record
            attempts.append(record.reason)
            refused = record
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)

    script = plan.orders() + (b"go\tnow\nthen\n" if plan.sources else b"") + b"stop\n"
    async with launching(hosts, route, script):
        return list(await asyncio.gather(*(one(host) for host in hosts)))


async def look_at(
    host: Host, transport: Transport, plan: Plan, timeout: float, stop: asyncio.Event
) -> tuple[HostResult, bool]:
    """Read the plan once on one host. Gives its record, and whether another try is worthwhile."""
    began, at = time.monotonic(), dt.datetime.now(dt.UTC)
    session = Session(host, transport, plan)
    status: HostStatus = "complete"
    reason, busy = "", False

    async def visit() -> None:
        async with session:
            await session.greet()
            clock = asyncio.create_task(session.measure_clock(PINGS))
            try:
                if plan.sources:
                    await session.read_all("now")
                await clock
            finally:
                clock.cancel()
            await session.stop()

    work = asyncio.create_task(visit())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([work, stopped], timeout=max(timeout, 0), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            status = "failed" if stop.is_set() else "timed-out"
            reason = "interrupted" if stop.is_set() else _waited_for(session, timeout)
            work.cancel()
            await asyncio.wait([work])
        else:
            work.result()
    except TransportError as error:
        status, reason, busy = error.status, str(error), isinstance(error, Busy)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this host's and costs no other
        status, reason = "failed", f"unexpected: {error!r}"
    finally:
        stopped.cancel()
        work.cancel()
        await asyncio.wait([work])
    session.visit.lost = session.decoder.lost
    record = session.visit.record("now", status, reason)
    record.seconds = round(time.monotonic() - began, 4)
    record.collected_at = iso_time(at)
    return record, busy


def _waited_for(session: Session, timeout: float) -> str:
    within = f"within {round(timeout, 2):g} s"  # what is left of the host's time is a moment less than was given
    if session.visit.hello:
        return f"not finished {within}"
    if session.decoder.noise:
        return f"no answer {within}; the host lets us in, but its login hangs"
    return f"no answer {within}; is the host up, does its sshd answer?"
