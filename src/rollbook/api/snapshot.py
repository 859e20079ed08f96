"""Snapshots as a function: the facts of every host, now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from rollbook.api.options import (
    TransportOptions,
    as_list,
    check_fanout,
    hosts_of,
    require_no_event_loop,
    transport_options,
)
from rollbook.collect.gather import gather
from rollbook.protocol.plan import Plan
from rollbook.records.document import Snapshot
from rollbook.sources import catalogue
from rollbook.times import iso_now
from rollbook.transports.routing import fallback_route, route

__all__ = ["snapshot", "snapshot_async"]


async def snapshot_async(
    hosts: str | Sequence[str] = (),
    *,
    sources: str | Sequence[str] = (),
    fanout: int = 64,
    **options: Unpack[TransportOptions],
) -> Snapshot:
    """The facts of every host, now; without hosts, of this machine.

    `hosts` is a nodeset or several, `sources` names one to read, or several (all by default), `options` choose the
    transport (`rollbook.api.options.TransportOptions`).
    """
    asked = hosts_of(hosts)
    plan = Plan.of([catalogue.source(name) for name in as_list(sources)] or catalogue.load())
    chosen = transport_options(**options)
    created = iso_now()
    records = await gather(
        asked,
        route(chosen),
        plan,
        timeout=chosen.timeout,
        fanout=check_fanout(fanout),
        fallback=fallback_route(chosen),
    )
    return Snapshot.of(created, records)


def snapshot(
    hosts: str | Sequence[str] = (),
    *,
    sources: str | Sequence[str] = (),
    fanout: int = 64,
    **options: Unpack[TransportOptions],
) -> Snapshot:
    """As `snapshot_async`, for code without an event loop."""
    require_no_event_loop("rollbook.snapshot", "await rollbook.snapshot_async(...)")
    return asyncio.run(snapshot_async(hosts, sources=sources, fanout=fanout, **options))
