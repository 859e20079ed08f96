"""/sys/fs/cgroup: CPU, memory and I/O of the Slurm job or of the agent's cgroup (admin-guide/cgroup-v2)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.sources.base import Facts, Glob, Pages, columns, counter, gauge
from rollbook.sources.text import fields_of, integer, last_part, lines_of

FILES = ("cpu.stat", "cpuacct.usage", "memory.current", "memory.usage_in_bytes", "memory.events", "io.stat")


class CgroupStat(Facts):
    """The cgroup of the Slurm job; without Slurm, the cgroup of the agent.

    Over ssh that is the login session, which says little about the host; on the local machine it includes a wrapped
    command. I/O columns are named by device number, such as `259:0.rbytes`.
    """

    cpu_usage_us: Annotated[int | None, counter("µs")] = None
    cpu_user_us: Annotated[int | None, counter("µs")] = None
    cpu_system_us: Annotated[int | None, counter("µs")] = None
    periods: Annotated[int | None, counter("events")] = None
    throttled_periods: Annotated[int | None, counter("events")] = None
    throttled_us: Annotated[int | None, counter("µs")] = None
    memory_bytes: Annotated[int | None, gauge("bytes")] = None
    memory_events: Annotated[dict[str, int], columns(counter("events"))] = msgspec.field(default_factory=dict)
    io_bytes: Annotated[dict[str, int], columns(counter("bytes"))] = msgspec.field(default_factory=dict)
    io_requests: Annotated[dict[str, int], columns(counter("requests"))] = msgspec.field(default_factory=dict)


def parse(pages: Pages) -> CgroupStat:
    """The files of one cgroup directory per hierarchy."""
    stat = CgroupStat()
    for path, text in pages.items():
        file = last_part(path)
        if file == "cpu.stat":
            _cpu(stat, {name: integer(value) for name, value in fields_of(text).items()})
        elif file == "cpuacct.usage":
            stat.cpu_usage_us = integer(text.strip()) // 1000
        elif file in ("memory.current", "memory.usage_in_bytes"):
            stat.memory_bytes = integer(text.strip())
        elif file == "memory.events":
            stat.memory_events = {name: integer(value) for name, value in fields_of(text).items()}
        elif file == "io.stat":
            for line in lines_of(text):
                _io(stat, *line.split())
    return stat


def _cpu(stat: CgroupStat, values: dict[str, int]) -> None:
    """Version 2 has microseconds in `_usec` lines; version 1 has only the throttled time, in nanoseconds."""
    if "usage_usec" in values:
        stat.cpu_usage_us = values["usage_usec"]
        stat.cpu_user_us, stat.cpu_system_us = values.get("user_usec"), values.get("system_usec")
    if "nr_periods" in values:
        stat.periods, stat.throttled_periods = values["nr_periods"], values["nr_throttled"]
        v1 = "throttled_time" in values
        stat.throttled_us = values["throttled_time"] // 1000 if v1 else values["throttled_usec"]


def _io(stat: CgroupStat, *words: str) -> None:
    """`8:0 rbytes=… wbytes=… rios=… wios=… dbytes=… dios=…`; I/O cost controllers add more words.

    Kernels print devices without numbers at the beginning of the next line, and `(unknown)` for paths of NVMe drives.
    """
    device = ""
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            device = word
        elif device.startswith("("):
            continue
        elif name in ("rbytes", "wbytes", "dbytes"):
            stat.io_bytes[f"{device}.{name}"] = integer(value)
        elif name in ("rios", "wios", "dios"):
            stat.io_requests[f"{device}.{name}"] = integer(value)


SOURCE = Glob([f"{{own}}/{name}" for name in FILES], parse, every=1, plain_numbers=True)
