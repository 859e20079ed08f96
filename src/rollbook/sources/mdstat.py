"""/proc/mdstat: software RAID arrays, their state and members (md(4))."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, File, gauge, key, same, same_set
from rollbook.sources.text import integer, number


class Array(Facts):
    """One array. `degraded` is null for levels without redundancy (linear, raid0).

    The level `container` is that of the disks of a RAID controller (Intel VROC, DDF), which is never active itself.
    """

    array: Annotated[str, key()]
    state: Annotated[str, same()]
    level: Annotated[str | None, same()] = None
    members: Annotated[list[str], same_set()] = msgspec.field(default_factory=list)
    failed: Annotated[list[str], same_set()] = msgspec.field(default_factory=list)
    spares: Annotated[list[str], same_set()] = msgspec.field(default_factory=list)
    wanted: Annotated[int | None, same("devices")] = None
    working: Annotated[int | None, same("devices")] = None
    degraded: Annotated[bool | None, same()] = None
    action: Annotated[str | None, same()] = None
    progress_percent: Annotated[float | None, gauge("%")] = None


def parse(text: str) -> list[Array]:
    """`md0 : active raid5 sdc1[2](F) sdb1[1] …`, then indented lines: `… [3/2] [UU_]`, `recovery = 12.6% …`."""
    first, *lines = text.splitlines()
    if not first.startswith("Personalities"):
        raise ParseError(f"not a list of arrays: {first[:80]!r}")
    rows: list[Array] = []
    for line in lines:
        head = re.match(r"(\S+) : (active|inactive|broken)( \([\w-]+\))?(.*)", line)
        if head:
            words = head[4].split()
            devices = [re.fullmatch(r"([^\[]+)\[\d+\]((?:\(\w\))*)", word) for word in words]
            row = Array(head[1], head[2] + (head[3] or ""))
            row.level = words[0] if words and devices[0] is None else None
            row.members = [device[1] for device in devices if device]
            row.failed = [device[1] for device in devices if device and "(F)" in device[2]]
            row.spares = [device[1] for device in devices if device and "(S)" in device[2]]
            rows.append(row)
        elif line.startswith(" ") and rows:
            details(rows[-1], line)
    return rows


def details(row: Array, line: str) -> None:
    """Add the values of an indented line to its array."""
    if re.search(r" super external:\w", line, re.ASCII):  # an array in a container names it: external:/md127/0
        row.level = "container"
    counts = re.search(r"\[(\d+)/(\d+)\] \[[U_]+\]", line, re.ASCII)
    if counts:
        row.wanted, row.working = integer(counts[1]), integer(counts[2])
        row.degraded = row.working < row.wanted
    action = re.search(r"(recovery|resync|reshape|check|repair)\s*=\s*(?:([\d.]+)%|[A-Z]+)", line, re.ASCII)
    if action:
        row.action = action[1]
        row.progress_percent = number(action[2]) if action[2] else None


SOURCE = File("/proc/mdstat", parse)
