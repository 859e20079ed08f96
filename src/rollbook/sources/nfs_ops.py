"""/proc/self/mountstats: requests, bytes and latency per NFS mount and operation (net/sunrpc/stats.c)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.sources.base import KIB, Facts, File, counter, info, key
from rollbook.sources.nfs import nfs_mounts
from rollbook.sources.text import columns_of, integers


class NfsOperation(Facts):
    """One operation of one mount, since it was mounted.

    Times are sums over all requests: `queue_ms` in the send queue, `rtt_ms` until the reply, `execute_ms` in total.
    """

    mount_point: Annotated[str, key()]
    operation: Annotated[str, key()]
    ops: Annotated[int, counter("requests")]
    transmissions: Annotated[int, counter("requests")]
    timeouts: Annotated[int, counter("events")]
    bytes_sent: Annotated[int, counter("bytes")]
    bytes_received: Annotated[int, counter("bytes")]
    queue_ms: Annotated[int, counter("ms")]
    rtt_ms: Annotated[int, counter("ms")]
    execute_ms: Annotated[int, counter("ms")]
    errors: Annotated[int | None, counter("requests")] = None
    extra: Annotated[list[int], info()] = msgspec.field(default_factory=list)


def parse(text: str) -> list[NfsOperation]:
    """`READ: number…` lines after `per-op statistics`: 8 numbers, since Linux 5.3 also the errors."""
    rows = []
    for place, _, lines in nfs_mounts(text):
        start = lines.index("per-op statistics") + 1
        for line in lines[start:]:
            operation, *words = columns_of(line, 9)
            numbers = integers(words)
            rows.append(NfsOperation(place, operation.rstrip(":"), *numbers[:9]))
            rows[-1].extra = numbers[9:]
    return rows


SOURCE = File("/proc/self/mountstats", parse, every=10, plain_numbers=True, limit=1024 * KIB)
