"""Control groups: what the job itself used of CPU, memory and disks (admin-guide/cgroup-v2, cgroup-v1)."""

from __future__ import annotations

from typing import Annotated

from rollbook.sources.base import Glob, Pages, Record, columns, counter, gauge
from rollbook.sources.text import fields_of, integer, levels, lines_of

FILES = "cpu.stat memory.current memory.events io.stat cpuacct.usage memory.usage_in_bytes".split()
IO_BYTES = ("rbytes", "wbytes", "dbytes")
IO_REQUESTS = ("rios", "wios", "dios")


class CgroupStat(Record):
    """The agent's own control group. I/O columns are by device number, as in `259:0.rbytes`."""

    cpu_usage_us: Annotated[int | None, counter("µs")] = None
    cpu_user_us: Annotated[int | None, counter("µs")] = None
    cpu_system_us: Annotated[int | None, counter("µs")] = None
    periods: Annotated[int | None, counter("events")] = None
    throttled_periods: Annotated[int | None, counter("events")] = None
    throttled_us: Annotated[int | None, counter("µs")] = None
    memory_bytes: Annotated[int | None, gauge("bytes")] = None
    memory_events: Annotated[dict[str, int], columns(counter("events"))] = {}
    io_bytes: Annotated[dict[str, int], columns(counter("bytes"))] = {}
    io_requests: Annotated[dict[str, int], columns(counter("requests"))] = {}


def parse(pages: Pages) -> CgroupStat:
    """Only the deepest directories count, one in each hierarchy: what lies above them holds the neighbours too."""
    places = {PurePosixPath(path).parent for path in pages}
    above = {parent for place in places for parent in place.parents}
    own = [path for path in pages if PurePosixPath(path).parent not in above]
    stat = CgroupStat()
    for path in own:
        _add(stat, path.rpartition("/")[2], pages[path])
    return stat


def _add(stat: CgroupStat, file: str, text: str) -> None:
    if file == "cpu.stat":
        _cpu(stat, {name: integer(value) for name, value in fields_of(text).items()})
    elif file == "cpuacct.usage":
        stat.cpu_usage_us = integer(text.strip()) // 1000
    elif file in ("memory.current", "memory.usage_in_bytes"):
        stat.memory_bytes = integer(text.strip())
    elif file == "memory.events":
        stat.memory_events = {name: integer(value) for name, value in fields_of(text).items()}
    else:
        for device, name, value in re.findall(r"^(\d+:\d+)|(\w+)=(\S+)", text, re.MULTILINE):
            raise NotImplementedError


def _cpu(stat: CgroupStat, values: dict[str, int]) -> None:
    """Version 2 counts microseconds under `_usec`, version 1 the throttled time in nanoseconds."""
    if "usage_usec" in values:
        stat.cpu_usage_us = values["usage_usec"]
        stat.cpu_user_us = values.get("user_usec")
        stat.cpu_system_us = values.get("system_usec")
    if "nr_periods" in values:
        stat.periods, stat.throttled_periods = values["nr_periods"], values["nr_throttled"]
        v1 = "throttled_time" in values
        stat.throttled_us = values["throttled_time"] // 1000 if v1 else values["throttled_usec"]


SOURCE = Glob([f"{{cgroup}}/{name}" for name in FILES], parse, every=1)
