"""A plan run over many hosts: bounded fan-out, a deadline for each host, and a record of every host asked for."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from rollbook.collect.plan import Plan
from rollbook.collect.readings import Reading, parsed
from rollbook.collect.session import Session
from rollbook.errors import TransportError
from rollbook.hosts import Host
from rollbook.record.hosts import Cost, HostRecord, HostStatus, ReadingStatus
from rollbook.transports.base import Transport
from rollbook.transports.ssh import Busy

__all__ = ["Progress", "gather", "look_at"]

DEFECTS = ("timed-out", "truncated", "failed")  # of a reading: what was asked for is not there as it should be
FIRST_WAIT, LONGEST_WAIT = 0.25, 8.0
Route = Callable[[Host], Transport]


class Progress(Protocol):
    """Told as hosts are begun and done; a view of the run, never its keeper."""

    def begun(self, host: Host) -> None:
        """A connection to the host is being made."""

    def done(self, record: HostRecord) -> None:
        """The host is finished, well or not."""


class _Quiet:
    def begun(self, host: Host) -> None: ...
    def done(self, record: HostRecord) -> None: ...


async def gather(
    hosts: Sequence[Host],
    route: Route,
    plan: Plan,
    *,
    timeout: float = 60.0,
    fanout: int = 64,
    progress: Progress | None = None,
    stop: asyncio.Event | None = None,
) -> list[HostRecord]:
    """Look at all hosts, `fanout` at a time; one record for each, in the order asked.

    No host takes longer than `timeout` from its turn on, and none costs another. When `stop` is set, hosts under way
    are ended with what they gave so far, and the rest are recorded as not asked.
    """
    progress = progress or _Quiet()
    turns = asyncio.Semaphore(fanout)
    stop = stop or asyncio.Event()

    async def one(host: Host) -> HostRecord:
        attempts: list[str] = []
        deadline: float | None = None
        wait = FIRST_WAIT
        while True:
            async with turns:
                if stop.is_set():
                    return HostRecord(name=host.name, status="failed", reason="interrupted before its turn")
                if deadline is None:
                    deadline = time.monotonic() + timeout
                    progress.begun(host)
                record, busy = await look_at(host, route(host), plan, deadline - time.monotonic(), stop)
            pause = wait * random.uniform(0.5, 1.5)  # noqa: S311 - spreads logins, guards nothing
            if not busy or time.monotonic() + pause > deadline:
                record.attempts = attempts
                progress.done(record)
                return record
            attempts.append(record.reason)
            await asyncio.wait([asyncio.ensure_future(stop.wait())], timeout=pause)
            wait = min(2 * wait, LONGEST_WAIT)

    return list(await asyncio.gather(*(one(host) for host in hosts)))


async def look_at(
    host: Host, transport: Transport, plan: Plan, timeout: float, stop: asyncio.Event
) -> tuple[HostRecord, bool]:
    """Read the plan once on one host. Gives its record, and whether another try is worthwhile."""
    began, at = time.monotonic(), dt.datetime.now(dt.UTC)
    session = Session(host, transport, plan)
    status: HostStatus = "complete"
    reason, busy = "", False

    async def visit() -> None:
        async with session:
            await session.greet()
            clock = asyncio.create_task(session.measure_clock())
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
    finally:
        stopped.cancel()
        work.cancel()
        await asyncio.wait([work])
    record = _record(session, transport.name)
    defects = [defect for reading in session.readings if (defect := _add(record, reading))]
    record.status, record.reason = _verdict(record, status, reason, defects, len(plan.sources))
    record.seconds = round(time.monotonic() - began, 4)
    record.collected_at = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return record, busy


def _waited_for(session: Session, timeout: float) -> str:
    waited = f"no answer within {timeout:.0f} s"
    if not session.hello:
        return (
            f"{waited}; the host accepts connections but does not log in, or its login hangs"
            if (session.decoder.noise)
            else f"{waited}; is the host up, does its sshd answer?"
        )
    return f"not finished within {timeout:.0f} s"


def _record(session: Session, method: str) -> HostRecord:
    hello, host = session.hello, session.host
    record = HostRecord(name=host.name, status="complete", user=host.user, slots=host.slots)
    if hello:
        record.method = method
        record.agent = f"python {hello.get('python', '')}" if hello.get("kind") == "python" else "sh"
        record.hostname = hello.get("hostname") or None
        record.machine_id = hello.get("machine_id") or None
        record.boot_id = hello.get("boot_id") or None
        record.uid = _whole(hello.get("uid"))
    record.clock = session.clock
    record.lost_frames = session.decoder.lost
    if session.goodbye:
        peak = _whole(session.goodbye.get("peak_kib"))
        cpu = session.goodbye.get("cpu", "")
        record.cost = Cost(
            float(cpu) if cpu.replace(".", "", 1).isdigit() else None,
            peak * 1024 if peak is not None else None,
            _whole(session.goodbye.get("sent")),
            _whole(session.goodbye.get("stuck")),
        )
    return record


def _add(record: HostRecord, reading: Reading) -> str | None:
    """Put a reading's fact and status into the record; gives the defect if it is not as it should be."""
    fact, why = parsed(reading)
    name, status = reading.source.name, reading.status
    # A program of the host that ran and said no, such as one whose service is off, has given its answer.
    declined = status == "failed" and reading.source.runs_program
    if fact is not None:
        record.facts[name] = fact
    elif status == "ok":
        status = "failed"
    record.readings[name] = ReadingStatus(status, round(reading.seconds, 6), why or reading.note)
    return f"{name} {status}" if status in DEFECTS and not declined else None


def _verdict(record: HostRecord, status: HostStatus, reason: str, bad: list[str], asked: int) -> tuple[HostStatus, str]:
    """The host's status in the end: partial where some, but not all, of what was asked is there."""
    missing = asked - len(record.readings)
    if status == "complete":
        if not bad and not missing:
            return "complete", ""
        if missing and not bad:
            return "partial", f"{missing} of {asked} sources were lost on the way"
        return "partial", f"{len(bad) + missing} of {asked} sources missing: {', '.join(bad[:5])}" + (
            ", …" if len(bad) > 5 else ""
        )
    if record.facts:
        return "partial", f"{reason}; {missing} of {asked} sources missing"
    return status, reason


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 19 else None
