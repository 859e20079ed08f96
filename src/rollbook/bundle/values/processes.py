"""Processes that are blocked in the kernel, and traces of crashes."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import NamedTuple

from rollbook.bundle.evidence import BundleData, Text, node_finding
from rollbook.bundle.log_times import line_time
from rollbook.records.findings import EvidenceLine, Finding

__all__ = ["blocked", "crash_records", "gpu_stuck"]

MANY = 5  # blocked processes that are more than a busy disk has for a moment
LONG = 60.0  # seconds that a process has run for a call into the driver to count as stuck
HEAD = re.compile(r"== (\d+) state (\w) (.*?) wchan (\S*)")
STARTED = re.compile(r"\w{3} \w{3} +\d{1,2} \d\d:\d\d:\d\d \d{4}")
KERNEL_THREADS = re.compile(r"kworker|jbd2|kswapd|md\d+_|xfsaild|dmcrypt|usb-storage|scsi_|khugepaged|loop\d")


class _Blocked(NamedTuple):
    text: Text
    line: int
    pid: str
    name: str
    place: str
    stack: str


def blocked(run: BundleData) -> Iterator[Finding]:
    """Processes in state D by their place in the kernel; a note unless there are many."""
    found: dict[tuple[str, str], list[_Blocked]] = {}
    for one in _blocked(run):
        if one.name and not KERNEL_THREADS.match(one.name):  # without a name: it ended while it was read
            found.setdefault((one.text.node, one.place), []).append(one)
    for (node, place), ones in found.items():
        names = ", ".join(dict.fromkeys(one.name for one in ones[:5]))
        noun = "process is" if len(ones) == 1 else "processes are"
        lines = [line for one in ones[:5] for line in one.text.quote(one.line)]
        severity = "warn" if len(ones) >= MANY else "note"
        message = f"{len(ones)} {noun} blocked in {place or 'the kernel'}: {names}"
        yield node_finding(node, message, device=place, severity=severity, lines=lines, count=len(ones))  # type: ignore[arg-type]


def gpu_stuck(run: BundleData) -> Iterator[Finding]:
    """Processes in state D inside NVIDIA's driver that are older than a minute."""
    ages = _ages(run)
    for one in _blocked(run):
        inside = one.name.startswith("nvidia-") or "[nvidia" in one.stack or "os_acquire" in one.place
        if inside and ages.get((one.text.node, one.pid), 0.0) >= LONG:
            lines: tuple[EvidenceLine, ...] = one.text.quote(*range(one.line, one.line + 4))
            message = f"{one.name} ({one.pid}) hangs in {one.place or 'the driver'}"
            yield node_finding(one.text.node, message, device=one.name, lines=lines)


def crash_records(run: BundleData) -> Iterator[Finding]:
    """Crash dumps and records of the firmware that exist on a node."""
    for text in run.texts("kernel-log-previous"):
        if re.search(r"/(vmcore-dmesg\.txt|dmesg\.\d+|dmesg-(efi|erst)[\w-]+)$", text.source):
            yield node_finding(text.node, f"a crash was recorded: {text.source}", severity="warn", lines=text.quote(1))


def _blocked(run: BundleData) -> Iterator[_Blocked]:
    for text in run.texts("processes"):
        current: _Blocked | None = None
        for number, line in text.lines():
            if line.startswith("== "):
                if current:
                    yield current
                head = HEAD.match(line)
                is_blocked = head and head[2] == "D"
                current = (
                    _Blocked(text, number, head[1], head[3], head[4].strip("0"), "") if head and is_blocked else None
                )
            elif current:
                current = current._replace(stack=current.stack + line)
        if current:
            yield current


def _ages(run: BundleData) -> dict[tuple[str, str], float]:
    """How long each process had run when the report was made, in seconds."""
    found: dict[tuple[str, str], float] = {}
    ended = run.bundle.read_at
    for text in run.texts("processes", "ps *"):
        zone = run.zones.get(text.node, dt.UTC)
        for _, line in text.lines():
            words, started = line.split(maxsplit=1), STARTED.search(line)
            at = line_time(f"[{started[0]}]", ended[text.node], zone=zone) if started else None
            if at and len(words) == 2 and words[0].isdigit():
                found[text.node, words[0]] = (ended[text.node] - at).total_seconds()
    return found
