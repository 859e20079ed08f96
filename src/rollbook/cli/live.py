"""Work in the foreground: progress is shown, and Ctrl-C returns the results so far."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rollbook.api.signals import STOPS
from rollbook.cli.output import ProgressView
from rollbook.cli.reach import Reach
from rollbook.collect.gather import gather
from rollbook.protocol.plan import Plan
from rollbook.records.hosts import HostResult

__all__ = ["gather_live", "run_interruptible"]

T = TypeVar("T")


def run_interruptible(start: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
    """Run a coroutine that ends early when the event is set; returns its result and whether the user interrupted it.

    The first Ctrl-C, or another signal that asks to stop, sets the event; a second one raises `KeyboardInterrupt`. A
    signal that was ignored when the process started, as under nohup, stays ignored.
    """

    async def main() -> tuple[T, bool]:
        stop, interrupted = asyncio.Event(), False
        task = asyncio.create_task(start(stop))

        def interrupt() -> None:
            nonlocal interrupted
            if interrupted:
                task.cancel()
            interrupted = True
            stop.set()

        for number in STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, interrupt)
        try:
            result = await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        return result, interrupted

    return asyncio.run(main())


def gather_live(reach: Reach, plan: Plan) -> tuple[list[HostResult], bool]:
    """The results of all hosts, and whether the user interrupted. A second Ctrl-C raises `KeyboardInterrupt`."""
    with ProgressView(reach.hosts) as view:
        results, interrupted = run_interruptible(
            lambda stop: gather(
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
    reach.report_stand_ins(results)
    return results, interrupted
