"""/proc/net/snmp and /proc/net/netstat: IP, TCP and UDP counters such as retransmits and drops (RFC 1213)."""

from __future__ import annotations

from typing import Annotated

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Files, Pages, columns, counter, gauge
from rollbook.sources.text import integer, lines_of

# All other columns are totals since boot.
LEVELS = frozenset(
    {
        "Ip.Forwarding",
        "Ip.DefaultTTL",
        "Tcp.RtoAlgorithm",
        "Tcp.RtoMin",
        "Tcp.RtoMax",
        "Tcp.MaxConn",
        "Tcp.CurrEstab",
    }
)


class NetSnmp(Facts):
    """Columns named `Protocol.Name`, such as `Tcp.RetransSegs` or `TcpExt.ListenDrops`."""

    counters: Annotated[dict[str, int], columns(counter("events"))]
    gauges: Annotated[dict[str, int], columns(gauge(""))]


def parse(pages: Pages) -> NetSnmp:
    """Pairs of lines: `Tcp: name name …`, then `Tcp: number number …`."""
    found: dict[str, int] = {}
    for text in pages.values():
        lines = lines_of(text)
        for header, values in zip(lines[::2], lines[1::2], strict=True):
            protocol, *names = header.split()
            again, *words = values.split()
            if protocol != again or not protocol.endswith(":") or len(names) != len(words):
                raise ParseError(f"names and values do not match: {header[:80]!r}, {values[:80]!r}")
            found.update((f"{protocol[:-1]}.{name}", integer(w)) for name, w in zip(names, words, strict=True))
    return NetSnmp(
        counters={name: value for name, value in found.items() if name not in LEVELS},
        gauges={name: value for name, value in found.items() if name in LEVELS},
    )


SOURCE = Files({"snmp": "/proc/net/snmp", "netstat": "/proc/net/netstat"}, parse, every=10, plain_numbers=True)
