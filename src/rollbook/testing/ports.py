"""Ports for servers that must be told which one to use."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

__all__ = ["free_ports"]

LOWEST, HIGHEST = 10_000, 30_000


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Different ports of an address that no program uses.

    They lie below those that the kernel gives to connections, if these begin above 30000: any connection could take one
    of those before the server has started.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: set[int] = set()
    while len(found) < count:
        port = random.randrange(LOWEST, max(first, HIGHEST))  # noqa: S311 - not a secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            found.add(port)
    return list(found)
