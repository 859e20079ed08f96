"""/sys/class/infiniband/*/ports/*/counters: traffic and errors of RDMA ports (ABI/stable/sysfs-class-infiniband).

`port_xmit_data` and `port_rcv_data` count words of four bytes; they appear here as `tx_bytes` and `rx_bytes`.
EFA and others without `counters` count bytes under those very names in `hw_counters`.
"""

from __future__ import annotations

import re
from typing import Annotated

from rollbook.sources.base import Glob, Pages, Record, columns, counter, delta, key
from rollbook.sources.text import bounded, integer

WORD = 4
BYTES = {"port_xmit_data": ("tx_bytes", WORD), "port_rcv_data": ("rx_bytes", WORD)}
# What a sound link never counts. Timeouts, retries and drops belong to a busy fabric and stay with the others.
LINK_ERRORS = frozenset(
    (
        "excessive_buffer_overrun_errors",
        "link_downed",
        "link_error_recovery",
        "local_link_integrity_errors",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "symbol_error",
    )
)


class PortCounters(Record):
    """One port's totals: bytes, errors of the link, and every other counter the driver has."""

    port: Annotated[str, key()]
    rx_bytes: Annotated[int | None, counter("bytes")] = None
    tx_bytes: Annotated[int | None, counter("bytes")] = None
    errors: Annotated[dict[str, int], columns(delta())] = {}
    counters: Annotated[dict[str, int], columns(counter("events"))] = {}


def parse(pages: Pages) -> list[PortCounters]:
    """One number per file; `lifespan` beside them is a setting: how many milliseconds the driver caches them."""
    rows: dict[str, PortCounters] = {}
    for path, text in sorted(pages.items()):
        place = re.fullmatch(r".*/infiniband/([^/]+)/ports/([^/]+)/(?:hw_)?counters/([^/]+)", path)
        if not place or place[3] == "lifespan" or not text.strip():
            continue
        row = rows.setdefault(f"{place[1]}:{place[2]}", PortCounters(f"{place[1]}:{place[2]}"))
        name, size = BYTES.get(place[3], (place[3], 1))
        value = bounded(integer(text.strip()) * size)
        if name in ("rx_bytes", "tx_bytes"):
            setattr(row, name, value)
        elif name in LINK_ERRORS:
            row.errors[name] = value
        else:
            row.counters[name] = value
    return list(rows.values())


SOURCE = Glob(
    [f"/sys/class/infiniband/*/ports/*/{where}/*" for where in ("counters", "hw_counters")],
    parse,
    every=5,
)
