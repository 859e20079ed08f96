"""/proc/stat: context switches, forks, interrupts and blocked tasks of the host (proc_stat(5))."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, File, counter, gauge, info
from rollbook.sources.text import columns_of, integer, lines_of


class StatTotals(Facts):
    """Totals of the host. Of `intr` and `softirq` only the sum is kept."""

    ctxt: Annotated[int, counter("switches")]
    processes: Annotated[int, counter("forks")]
    btime: Annotated[int, info()]
    procs_running: Annotated[int, gauge("tasks")]
    procs_blocked: Annotated[int, gauge("tasks")]
    interrupts: Annotated[int, counter("interrupts")]
    softirqs: Annotated[int, counter("interrupts")]


def parse(text: str) -> StatTotals:
    """`name number …` lines; unknown names are ignored."""
    first = {}
    for line in lines_of(text):
        name, value, *_ = columns_of(line, 2)
        first[name] = value
    names = ("ctxt", "processes", "btime", "procs_running", "procs_blocked", "intr", "softirq")
    return StatTotals(*(integer(first[name]) for name in names))


SOURCE = File("/proc/stat", parse, every=1, plain_numbers=True)
