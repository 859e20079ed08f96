"""Snapshots: the facts of every host, now."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from rollbook.api.options import TransportOptions, as_list, check_fanout, hosts_of, transport_keywords
from rollbook.api.recording import in_thread
from rollbook.collect.gather import gather
from rollbook.protocol.plan import Plan
from rollbook.records.document import Snapshot
from rollbook.sources import catalogue
from rollbook.times import iso_now
from rollbook.transports.base import FANOUT
from rollbook.transports.routing import Options, fallback_route, route

__all__ = ["snapshot", "snapshot_async"]


class SnapshotOptions(TransportOptions, total=False):
    """Options of `snapshot`: `sources` to read (default: all), and hosts contacted in parallel (default: 64)."""

    sources: str | Sequence[str]
    fanout: int


async def snapshot_async(hosts: str | Sequence[str] = (), **options: Unpack[SnapshotOptions]) -> Snapshot:
    """Read the facts of every host now; without hosts, of this machine.

    `hosts` is a nodeset or a list of them; for the options see `SnapshotOptions`. A host that fails is in the result
    with its reason; `UsageError` is raised for values that cannot be used.
    """
    requested, reach = hosts_of(hosts), Options.of(**transport_keywords(options, SnapshotOptions))
    names = as_list(options.get("sources", ()))
    plan = Plan.of([catalogue.source(name) for name in names] or catalogue.load())
    created = iso_now()
    fanout = check_fanout(options.get("fanout", FANOUT))
    results = await gather(
        requested, route(reach), plan, timeout=reach.timeout, fanout=fanout, fallback=fallback_route(reach)
    )
    return Snapshot.of(created, results)


def snapshot(hosts: str | Sequence[str] = (), **options: Unpack[SnapshotOptions]) -> Snapshot:
    """As `snapshot_async`, for code that does not await; in a running event loop, as in a notebook, it blocks it."""

    def take() -> Snapshot:
        return asyncio.run(snapshot_async(hosts, **options))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return take()
    return in_thread(take).result()
