"""/sys/class/infiniband/*/ports/*/counters: traffic and errors of RDMA ports (ABI/stable/sysfs-class-infiniband).

`port_xmit_data` and `port_rcv_data` count words of four bytes; here they are `tx_bytes` and `rx_bytes`.
EFA and other drivers without `counters` have `tx_bytes` and `rx_bytes` in `hw_counters`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.sources.base import Facts, Glob, Pages, columns, counter, delta, key
from rollbook.sources.text import bounded, integer

WORD = 4  # bytes
WORDS = {"port_rcv_data": "rx_bytes", "port_xmit_data": "tx_bytes"}
# Errors that a healthy link never has. Timeouts, retries and drops are normal on a busy fabric.
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


class PortCounters(Facts):
    """Totals of one port: bytes, link errors, and all other counters of the driver."""

    port: Annotated[str, key()]
    rx_bytes: Annotated[int | None, counter("bytes")] = None
    tx_bytes: Annotated[int | None, counter("bytes")] = None
    errors: Annotated[dict[str, int], columns(delta())] = msgspec.field(default_factory=dict)
    counters: Annotated[dict[str, int], columns(counter("events"))] = msgspec.field(default_factory=dict)


def parse(pages: Pages) -> list[PortCounters]:
    """One number per file, or `N/A (no PMA)`; `lifespan` is a cache setting, not a counter."""
    rows: dict[str, PortCounters] = {}
    for path, text in sorted(pages.items()):
        *_, device, _, port, _, name = path.split("/")
        row = rows.setdefault(f"{device}:{port}", PortCounters(f"{device}:{port}"))
        if name == "lifespan" or not text.strip() or text.startswith("N/A"):
            continue
        value = bounded(integer(text.strip()) * (WORD if name in WORDS else 1))
        total = WORDS.get(name, name)
        if total in WORDS.values() and getattr(row, total) is None:
            setattr(row, total, value)
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
