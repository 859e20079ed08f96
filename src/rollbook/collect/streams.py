"""All hosts for the length of a recording or a live view: one stream per host, all into one sink."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self, TypedDict

from rollbook.collect.budget import Budget
from rollbook.collect.file_limit import raise_limit
from rollbook.collect.gather import Progress
from rollbook.collect.stream import HostStream, Share, Sink
from rollbook.hosts import Host
from rollbook.protocol.beats import Schedule
from rollbook.protocol.plan import Plan
from rollbook.transports.base import FANOUT, TIMEOUT, Route
from rollbook.transports.launcher import count_launched, launching

__all__ = ["StreamOptions", "Streams"]


class StreamOptions(TypedDict, total=False):
    """The options of `Streams` that do not depend on what is sampled."""

    timeout: float
    fanout: int
    fallback: Route | None
    progress: Progress | None
    budget_factor: float


class Streams:
    """Use as `async with Streams(...)`; then `ready`, `mark`, and `end`.

    `streams` has one stream per host, in order, until the end. The sink gets the index of a host; `progress` is called
    for each host's start facts. What each host may send follows from plan and interval, times `budget_factor`.
    """

    def __init__(
        self,
        sink: Sink,
        hosts: Sequence[Host],
        route: Route,
        plan: Plan,
        *,
        schedule: Schedule,
        timeout: float = TIMEOUT,
        fanout: int = FANOUT,
        fallback: Route | None = None,
        progress: Progress | None = None,
        budget_factor: float = 1.0,
    ) -> None:
        self.sink, self.hosts, self.plan = sink, list(hosts), plan
        self.schedule, self.timeout, self.fanout = schedule, timeout, fanout
        self.routes = [route, fallback] if fallback else [route]
        self.streams: list[HostStream] = []
        self._progress, self._budget = progress, Budget.of(plan, schedule.interval_ns / 1e9).times(budget_factor)
        # The orders for agents of a launcher that cannot connect back; a signal ends `wait`.
        sample = schedule.order if schedule.interval_ns else b""
        script = plan.orders() + b"go\tstart\nthen\n" + sample + b"wait\ngo\tend\nthen\nstop\n"
        self._launching = launching(hosts, route, script)

    async def __aenter__(self) -> Self:
        raise_limit(len(self.hosts), count_launched(self.hosts, self.routes[0]))
        await self._launching.__aenter__()
        logins = asyncio.Semaphore(self.fanout)
        shared = (self.plan, self.sink, self.schedule, self.timeout, logins, self._budget, self._progress)
        self.streams = [HostStream(Share(number, *shared), host, self.routes) for number, host in enumerate(self.hosts)]
        return self

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self.end(facts=False, seconds=0.0)
        finally:
            await self._launching.__aexit__(None, None, None)

    async def ready(self) -> None:
        """Wait until every host has sent its start facts or failed.

        The timeout of a host starts when it is contacted, and again with the fallback.
        """
        await asyncio.gather(*(stream.ready.wait() for stream in self.streams))

    async def mark(self, name: str) -> None:
        """Take an extra sample on every host."""
        await asyncio.gather(*(stream.mark(name) for stream in self.streams))

    async def end(self, *, facts: bool, seconds: float | None = None) -> None:
        """End all streams; with `facts`, read the end facts first. May be called again after it was cancelled."""
        limit = self.timeout if seconds is None else seconds
        await asyncio.gather(*(stream.end(facts=facts, seconds=limit) for stream in self.streams))
        self.streams = []
