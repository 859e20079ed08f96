"""/proc/uptime: seconds since boot, and idle seconds of all CPUs (proc_uptime(5))."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Facts, File, counter, gauge
from rollbook.sources.text import columns_of, number


class Uptime(Facts):
    """Uptime of the host. The idle time is the sum over its CPUs."""

    uptime_seconds: Annotated[float, gauge("s")]
    idle_seconds: Annotated[float, counter("s")]


def parse(text: str) -> Uptime:
    """Two numbers on one line."""
    up, idle, *_ = columns_of(text, 2)
    return Uptime(number(up), number(idle))


SOURCE = File("/proc/uptime", parse)
