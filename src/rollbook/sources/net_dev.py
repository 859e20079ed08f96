"""/proc/net/dev: bytes, packets and errors per network interface (proc_pid_net(5))."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, counter, key
from rollbook.sources.text import columns_of, integer, lines_of


class Interface(Facts):
    """Totals of one interface since it was created."""

    interface_name: Annotated[str, key()]
    rx_bytes: Annotated[int, counter("bytes")]
    rx_packets: Annotated[int, counter("packets")]
    rx_errors: Annotated[int, counter("packets")]
    rx_dropped: Annotated[int, counter("packets")]
    rx_fifo: Annotated[int, counter("packets")]
    rx_frame: Annotated[int, counter("packets")]
    rx_compressed: Annotated[int, counter("packets")]
    rx_multicast: Annotated[int, counter("packets")]
    tx_bytes: Annotated[int, counter("bytes")]
    tx_packets: Annotated[int, counter("packets")]
    tx_errors: Annotated[int, counter("packets")]
    tx_dropped: Annotated[int, counter("packets")]
    tx_fifo: Annotated[int, counter("packets")]
    tx_collisions: Annotated[int, counter("packets")]
    tx_carrier: Annotated[int, counter("packets")]
    tx_compressed: Annotated[int, counter("packets")]


def parse(text: str) -> list[Interface]:
    """Two header lines, then `name: 16 numbers`; alias names such as `eth0:1` contain a colon."""
    rows = []
    for line in lines_of(text)[2:]:
        name, colon, numbers = line.rpartition(":")
        if not colon:
            raise ParseError(f"no interface name: {line[:80]!r}")
        rows.append(Interface(name.strip(), *(integer(word) for word in columns_of(numbers, 16)[:16])))
    return rows


SOURCE = File("/proc/net/dev", parse, every=1, plain_numbers=True, lines=("Inter-", " face"))
