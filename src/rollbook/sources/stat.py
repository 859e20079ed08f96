"""/proc/stat: CPU time per CPU and mode (proc_stat(5))."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, counter, info, key
from rollbook.sources.text import columns_of, integers, lines_of


class Cpu(Facts):
    """Times of one CPU since boot in ticks of 10 ms; the row `cpu` is the sum over all CPUs.

    User and nice time include guest time. Idle and iowait may decrease by a tick.
    """

    cpu: Annotated[str, key()]
    user: Annotated[int, counter("ticks")]
    nice: Annotated[int, counter("ticks")]
    system: Annotated[int, counter("ticks")]
    idle: Annotated[int, counter("ticks")]
    iowait: Annotated[int, counter("ticks")]
    irq: Annotated[int, counter("ticks")]
    softirq: Annotated[int, counter("ticks")]
    steal: Annotated[int, counter("ticks")]
    guest: Annotated[int, counter("ticks")]
    guest_nice: Annotated[int, counter("ticks")]
    extra: Annotated[list[int], info()] = msgspec.field(default_factory=list)


def parse(text: str) -> list[Cpu]:
    """Lines that start with `cpu`; offline CPUs have none."""
    rows = []
    for line in lines_of(text):
        if line.startswith("cpu"):
            name, *words = columns_of(line, 11)
            numbers = integers(words)
            rows.append(Cpu(name, *numbers[:10]))
            rows[-1].extra = numbers[10:]
    if not rows:
        raise ParseError("no cpu line")
    return rows


SOURCE = File("/proc/stat", parse, every=1, plain_numbers=True, lines=("cpu ",))
