"""nvidia-smi in loop mode: utilization, memory, power, clocks and temperature of NVIDIA GPUs (nvidia-smi(1)).

Starting the program takes about 50 ms of CPU time; in loop mode it starts once and writes on every beat.
"""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Order, Pages, Source, gauge, info, key
from rollbook.sources.text import integer, lines_of, number

QUERY = (
    "index,utilization.gpu,utilization.memory,memory.used,power.draw,temperature.gpu,clocks.sm,clocks.mem,"
    "clocks_throttle_reasons.active"
)


class GpuLoad(Facts):
    """Current values of one GPU; null if the GPU does not report a value.

    `throttled_percent` is 100 if any bit says that the GPU reduced its clocks itself: unlike bits, it has a mean.
    """

    index: Annotated[int, key()]
    busy_percent: Annotated[float | None, gauge("%")] = None
    memory_busy_percent: Annotated[float | None, gauge("%")] = None
    memory_used_mib: Annotated[float | None, gauge("MiB")] = None
    power_watts: Annotated[float | None, gauge("W")] = None
    celsius: Annotated[float | None, gauge("°C")] = None
    sm_mhz: Annotated[float | None, gauge("MHz")] = None
    memory_mhz: Annotated[float | None, gauge("MHz")] = None
    throttle_bits: Annotated[int | None, info()] = None
    throttled_percent: Annotated[int | None, gauge("%")] = None


LEVELS = GpuLoad.__struct_fields__[1:-2]
CHOSEN = 0b11  # the GPU is idle, and the user has set its clocks


def parse(pages: Pages) -> list[GpuLoad]:
    """Comma-separated lines, one per GPU and round; the last line of each GPU counts."""
    rows: dict[int, GpuLoad] = {}
    for line in lines_of("".join(pages.values())):
        index, *words = (word.strip() for word in line.split(","))
        if len(words) != QUERY.count(","):
            raise ParseError(line[:200])
        *levels, reasons = (None if word.startswith("[") or word == "N/A" else word for word in words)
        row = rows[integer(index)] = GpuLoad(integer(index))
        for field, word in zip(LEVELS, levels, strict=True):
            setattr(row, field, number(word) if word else None)
        if reasons:
            row.throttle_bits = integer(reasons, 16)
            row.throttled_percent = 100 * (row.throttle_bits & ~CHOSEN != 0)
    return [rows[index] for index in sorted(rows)]


PROGRAM = ("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-lms", "{ms}")
# Without persistence mode the start takes seconds.
SOURCE = Source((Order("loop", PROGRAM),), parse, list[GpuLoad], every=1, limit=64 * 1024, seconds=20)
