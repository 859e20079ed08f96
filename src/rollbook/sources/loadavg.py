"""/proc/loadavg: load averages and task counts (proc_loadavg(5))."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, File, gauge
from rollbook.sources.text import columns_of, integer, number


class LoadAvg(Facts):
    """Load averages and task counts. Running tasks include the agent itself."""

    load_1min: Annotated[float, gauge("tasks")]
    load_5min: Annotated[float, gauge("tasks")]
    load_15min: Annotated[float, gauge("tasks")]
    running_processes: Annotated[int, gauge("tasks")]
    total_processes: Annotated[int, gauge("tasks")]


def parse(text: str) -> LoadAvg:
    """One line: three averages, `running/total`, the last process id."""
    one, five, fifteen, tasks, *_ = columns_of(text, 4)
    running, _, total = tasks.partition("/")
    return LoadAvg(number(one), number(five), number(fifteen), integer(running), integer(total))


SOURCE = File("/proc/loadavg", parse, every=1, plain_numbers=True)
