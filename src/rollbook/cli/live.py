"""Reads all hosts in the foreground: shows progress, and on Ctrl-C returns the results so far."""

from __future__ import annotations

import asyncio
import signal

from rollbook.cli.output import ProgressView
from rollbook.cli.reach import Reach
from rollbook.collect.gather import gather
from rollbook.protocol.plan import Plan
from rollbook.records.hosts import HostResult

__all__ = ["gather_live"]


def gather_live(reach: Reach, plan: Plan) -> tuple[list[HostResult], bool]:
    """The results of all hosts, and whether the user interrupted. A second Ctrl-C raises `KeyboardInterrupt`."""

    async def main() -> bool:
        stop = asyncio.Event()
        task = asyncio.create_task(
            gather(
                reach.hosts,
                reach.route(),
                plan,
                timeout=reach.options.timeout,
                fanout=reach.fanout,
                progress=view,
                stop=stop,
                fallback=reach.fallback(),
            )
        )

        def interrupt() -> None:
            if stop.is_set():
                task.cancel()
            stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, interrupt)
        try:
            records.extend(await task)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        return stop.is_set()

    records: list[HostResult] = []
    with ProgressView(reach.hosts) as view:
        interrupted = asyncio.run(main())
    reach.report_stand_ins(records)
    return records, interrupted
