"""/proc/net/softnet_stat: packets processed and dropped by the receive path, per CPU (net/core/net-procfs.c)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.sources.base import U32, Facts, File, counter, gauge, info, key
from rollbook.sources.text import columns_of, integer, lines_of


class Softnet(Facts):
    """One CPU. `time_squeeze` counts receive rounds that used up their budget with packets left.

    Rows are named `cpu3` if the kernel gives the CPU (since 5.10), else `line3`: lines are in the order of online CPUs.
    """

    cpu: Annotated[str, key()]
    processed: Annotated[int, counter("packets", wraps=U32)]
    dropped: Annotated[int, counter("packets", wraps=U32)]
    time_squeeze: Annotated[int, counter("events", wraps=U32)]
    received_rps: Annotated[int | None, counter("events", wraps=U32)] = None
    flow_limit: Annotated[int | None, counter("packets", wraps=U32)] = None
    backlog: Annotated[int | None, gauge("packets")] = None
    input_queue: Annotated[int | None, gauge("packets")] = None
    process_queue: Annotated[int | None, gauge("packets")] = None
    extra: Annotated[list[int], info()] = msgspec.field(default_factory=list)


def parse(text: str) -> list[Softnet]:
    """Hexadecimal columns: 10 in Linux 3.10, 11 since 3.11, 13 since 5.10, later 15; five are always zero."""
    rows = []
    for index, line in enumerate(lines_of(text)):
        processed, dropped, squeezed, *rest = [integer(word, 16) for word in columns_of(line, 9)]
        # Ignored: five zeros, and transmit collisions, which kernels no longer count.
        rps, flow, backlog, cpu, queued, taken = [*rest[6:12], *[None] * 6][:6]
        name = f"line{index}" if cpu is None else f"cpu{cpu}"
        rows.append(Softnet(name, processed, dropped, squeezed, rps, flow, backlog, queued, taken, extra=rest[12:]))
    return rows


SOURCE = File("/proc/net/softnet_stat", parse, every=10)
