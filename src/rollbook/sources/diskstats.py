"""/proc/diskstats: requests, sectors and times per block device (admin-guide/iostats)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import U32, Facts, File, counter, gauge, info, key
from rollbook.sources.text import columns_of, integers, lines_of


class Disk(Facts):
    """Totals of one device since boot, including partitions, loop and ram devices.

    A sector is always 512 bytes. The kernel prints times as 32-bit numbers of milliseconds, also on 64-bit systems.
    """

    device_name: Annotated[str, key()]
    device_number: Annotated[str, info()]
    reads_completed: Annotated[int, counter("requests")]
    reads_merged: Annotated[int, counter("requests")]
    sectors_read: Annotated[int, counter("sectors")]
    time_reading_ms: Annotated[int, counter("ms", wraps=U32)]
    writes_completed: Annotated[int, counter("requests")]
    writes_merged: Annotated[int, counter("requests")]
    sectors_written: Annotated[int, counter("sectors")]
    time_writing_ms: Annotated[int, counter("ms", wraps=U32)]
    ios_in_progress: Annotated[int, gauge("requests")]
    time_doing_ios_ms: Annotated[int, counter("ms", wraps=U32)]
    weighted_time_doing_ios_ms: Annotated[int, counter("ms", wraps=U32)]
    discards_completed: Annotated[int | None, counter("requests")] = None
    discards_merged: Annotated[int | None, counter("requests")] = None
    sectors_discarded: Annotated[int | None, counter("sectors")] = None
    time_discarding_ms: Annotated[int | None, counter("ms", wraps=U32)] = None
    flush_requests_completed: Annotated[int | None, counter("requests")] = None
    time_flushing_ms: Annotated[int | None, counter("ms", wraps=U32)] = None
    extra: Annotated[list[int], info()] = msgspec.field(default_factory=list)


def parse(text: str) -> list[Disk]:
    """Two numbers and a name, then 11 numbers; 15 since Linux 4.18, 17 since 5.5.

    Lines with another number of columns are rejected: truncated lines, and partitions before 2.6.25.
    """
    rows = []
    for line in lines_of(text):
        major, minor, name, *words = columns_of(line, 14)
        if len(words) in (12, 13, 14, 16):
            raise ParseError(f"{len(words) + 3} columns match no known kernel: {line[:80]!r}")
        numbers = integers(words)
        rows.append(Disk(name, f"{major}:{minor}", *numbers[:17]))
        rows[-1].extra = numbers[17:]
    return rows


SOURCE = File("/proc/diskstats", parse, every=1, plain_numbers=True, lines=())
