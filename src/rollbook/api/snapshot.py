"""Snapshots as a function: the facts of every host, now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rollbook.api.options import at_once, hosts_of, listed, outside_a_loop, ways
from rollbook.collect.gather import gather
from rollbook.protocol.plan import Plan
from rollbook.records.document import Snapshot
from rollbook.sources import catalogue
from rollbook.times import iso_now
from rollbook.transports import fallback, route

__all__ = ["snapshot", "snapshot_async"]


async def snapshot_async(
    hosts: str | Sequence[str] = (), *, sources: str | Sequence[str] = (), fanout: int = 64, **options: Any
) -> Snapshot:
    """The facts of every host, now; without hosts, of this machine.

    `hosts` is a nodeset or several, `sources` names one to read, or several (all by default), `options` are the fields
    of `rollbook.transports.Options`.
    """
    asked = hosts_of(hosts)
    plan = Plan.of([catalogue.source(name) for name in listed(sources)] or catalogue.load())
    way = ways(**options)
    created = iso_now()
    records = await gather(asked, route(way), plan, timeout=way.timeout, fanout=at_once(fanout), fallback=fallback(way))
    return Snapshot.of(created, records)


def snapshot(
    hosts: str | Sequence[str] = (), *, sources: str | Sequence[str] = (), fanout: int = 64, **options: Any
) -> Snapshot:
    """As `snapshot_async`, for code without an event loop."""
    outside_a_loop("rollbook.snapshot", "await rollbook.snapshot_async(...)")
    return asyncio.run(snapshot_async(hosts, sources=sources, fanout=fanout, **options))
