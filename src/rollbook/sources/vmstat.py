"""/proc/vmstat: page counts and memory management events (proc_vmstat(5))."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, File, columns, counter, gauge
from rollbook.sources.text import fields_of, integer

# Names with `nr_` are gauges, except for these counters.
TOTALS = frozenset(
    {
        "nr_dirtied",
        "nr_foll_pin_acquired",
        "nr_foll_pin_released",
        "nr_throttled_written",
        "nr_tlb_local_flush_all",
        "nr_tlb_local_flush_one",
        "nr_tlb_remote_flush",
        "nr_tlb_remote_flush_received",
        "nr_vmscan_immediate_reclaim",
        "nr_vmscan_write",
        "nr_written",
    }
)


class VmStat(Facts):
    """Gauges in pages, and events since boot; `pgpgin` and `pgpgout` count KiB."""

    gauges: Annotated[dict[str, int], columns(gauge("pages"))]
    counters: Annotated[dict[str, int], columns(counter("events"))]


def parse(text: str) -> VmStat:
    """`name number` lines; the names depend on the kernel version and options."""
    gauges: dict[str, int] = {}
    counters: dict[str, int] = {}
    for name, value in fields_of(text).items():
        is_gauge = (name.startswith("nr_") and name not in TOTALS) or name == "workingset_nodes"
        (gauges if is_gauge else counters)[name] = integer(value)
    return VmStat(gauges, counters)


SOURCE = File("/proc/vmstat", parse, every=1, plain_numbers=True, lines=())
