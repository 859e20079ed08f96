"""Journals for tests and benchmarks: recorded here by the real agent, or generated for many hosts from mutated text."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollbook import agent
from rollbook.agent.loop import KEY_BEATS
from rollbook.journal.writer import Journal
from rollbook.protocol.frames import Decoder, Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.varint import put_varint
from rollbook.sources import catalogue

__all__ = ["Beats", "Script", "begin_of", "body_of", "mutated", "record_this_machine", "synthesise"]

SECOND = 10**9
NUMBER = re.compile(rb"(?<=[ \t=])\d+(?=[ \t\n]|$)(?! .*[a-z]{2})")  # not the device numbers before a name


def begin_of(hosts: Sequence[str], plan: Plan, interval_ns: int, **more: Any) -> dict[str, Any]:
    """The event that begins a journal."""
    return {
        "hosts": list(hosts),
        "sources": [source.name for source in plan.sources],
        "interval_ns": interval_ns,
        "type": "test",
        "argv": ["true"],
        "started_ns": time.time_ns(),
        **more,
    }


def record_this_machine(
    raw: Path, beats: int = 5, interval: float = 0.1, names: Sequence[str] = catalogue.NAMES, **more: Any
) -> list[Frame]:
    """Record this machine with the real agent: facts, samples, facts, as a recorder would; returns the frames."""
    plan = Plan.of([catalogue.source(name) for name in names])
    begin = begin_of(["here"], plan, round(interval * 1e9), **more)
    argv = [sys.executable, "-I", "-S", "-c", agent.BOOTSTRAP, agent.payload(), "binary"]
    orders = [plan.orders(), b"go\tstart\n", b"sample\t%d\n" % round(interval * 1e9), b"go\tend\n", b"stop\n"]
    frames: list[Frame] = []
    with Journal(raw, begin) as journal, subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(orders[0] + orders[1])
        child.stdin.flush()
        decoder, step, taken = Decoder(), 2, 0
        while data := os.read(child.stdout.fileno(), 1 << 16):
            for frame in decoder.feed(data):
                frames.append(frame)
                journal.frame(0, time.time_ns(), frame)
                taken += frame.kind == "S"
                if frame.kind == "H":
                    hello = dict(line.split("=", 1) for line in frame.payload.decode().splitlines())
                    journal.event({"event": "connected", "hello": hello, "method": "local"}, host=0)
                    clock = {"offset_ns": 0, "bound_ns": 1000, "round_trip_ns": 2000}
                    journal.event({"event": "clock", **clock}, host=0)
                if frame.kind == "D" or (taken == beats and step == 3):
                    child.stdin.write(orders[step])
                    child.stdin.flush()
                    step += 1
        journal.event({"event": "end"})
    return frames


class Beats:
    """Encodes the bodies of one host as its agent does: sample frames with one deflate stream per source."""

    def __init__(self, key_beats: int = KEY_BEATS) -> None:
        self._key_beats = key_beats
        self._streams: dict[int, zlib._Compress] = {}
        self._before: dict[int, bytes] = {}
        self._beat = 0

    def payload(self, bodies: Mapping[int, bytes], *, key: bool = False) -> bytes:
        """The payload of the next sample frame, by default a key frame only when one is due."""
        key = key or self._beat % self._key_beats == 0
        self._beat += 1
        payload, last = bytearray(), None
        for number, (source, body) in enumerate(bodies.items()):
            fresh = (key or source not in self._streams) and body != last
            if fresh:
                self._streams[source] = zlib.compressobj(4, zlib.DEFLATED, -15, 8, zlib.Z_FIXED)  # as the agent does
            flags, data = int(fresh), b""
            if body == last:
                flags = 4
            elif not fresh and self._before[source] == body:
                flags = 2
            else:
                stream = self._streams[source]
                data = (stream.compress(body) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4]
            self._before[source] = last = body
            for value in (source, flags, 20 * number, 15, len(data)):
                put_varint(payload, value)
            payload += data
        return bytes(payload)


class Script:
    """A journal written step by step: what each host sends, and when, by its own clocks and the collector's."""

    def __init__(
        self, raw: Path, hosts: Sequence[str], names: Sequence[str], interval_ns: int = SECOND, **more: Any
    ) -> None:
        self.plan = Plan(tuple(catalogue.source(name) for name in names))
        self.journal = Journal(raw, begin_of(hosts, self.plan, interval_ns, **more))
        self._numbers = {name: number for number, name in enumerate(names)}
        self._beats: dict[int, Beats] = {}
        self._seq: dict[int, int] = {}
        self._latest: dict[int, tuple[int, int, int]] = {}

    def connect(self, host: int = 0, boot: str = "boot-1", **hello: str) -> None:
        """A new connection of a host."""
        self._beats[host], self._seq[host] = Beats(), 0
        fields = {"kind": "python", "hostname": f"h{host}", "boot_id": boot, **hello}
        self.journal.event({"event": "connected", "hello": fields, "method": "local"}, host=host)

    def sample(
        self, wall: int, texts: Mapping[str, Mapping[str, str]], *, mono: int | None = None, host: int = 0
    ) -> None:
        """One sample: pages by source name. The frame arrives at once; without `mono`, both clocks go together."""
        bodies = {self._numbers[name]: body_of(pages) for name, pages in texts.items()}
        mono = wall - 10**18 if mono is None else mono
        self.frame("S", self._beats[host].payload(bodies), wall, mono, host=host)

    def frame(
        self, kind: str, payload: bytes, wall: int, mono: int, *, host: int = 0, arrived: int | None = None
    ) -> None:
        """Any frame."""
        self._seq[host] += 1
        frame = Frame(kind, self._seq[host], mono, wall, payload)
        arrived = wall if arrived is None else arrived
        self._latest[host] = wall, mono, arrived
        self.journal.frame(host, arrived, frame)

    def close(self, *, cut: bool = False) -> None:
        """End the journal, with the end frame of each host unless it is `cut` off."""
        for host, (wall, mono, arrived) in self._latest.items() if not cut else ():
            self.frame("E", b"", wall, mono, host=host, arrived=arrived)
        self.journal.event({"event": "end"})
        self.journal.close()


def body_of(pages: Mapping[str, str]) -> bytes:
    """Pages as the agent sends them, all with the status ok."""
    found = [(path, text.encode()) for path, text in pages.items()]
    return b"".join(b"ok %d %s\n%s" % (len(data), path.encode(), data) for path, data in found)


def mutated(body: bytes, random_: random.Random, share: float = 0.125) -> bytes:
    """The body with slightly larger numbers in some of its lines, and with correct page headers."""
    pages = []
    at = 0
    while at < len(body):
        end = body.index(b"\n", at)
        status, length, path = body[at:end].split(b" ", 2)
        text = body[end + 1 : end + 1 + int(length)]
        at = end + 1 + int(length)
        lines = text.split(b"\n")
        for index, line in enumerate(lines):
            if random_.random() < share:
                lines[index] = NUMBER.sub(lambda m: b"%d" % (int(m[0]) + random_.randrange(1, 4000)), line)
        text = b"\n".join(lines)
        pages.append(b"%s %d %s\n%s" % (status, len(text), path, text))
    return b"".join(pages)


def bodies_over_time(
    bodies: Mapping[int, bytes], every: Mapping[int, int], beats: int, seed: int
) -> Iterator[dict[int, bytes]]:
    """The bodies of each beat: those that are due, each slightly changed; equal bodies stay equal."""
    random_, now = random.Random(seed), dict(bodies)  # noqa: S311 - repeatable, not for secrets
    for beat in range(beats):
        due = {source for source in now if beat % every[source] == 0}
        changed = {body: mutated(body, random_) for body in {now[source]: 0 for source in sorted(due)}}
        now.update({source: changed[now[source]] for source in due})
        yield {source: body for source, body in now.items() if source in due}


def synthesise(
    raw: Path, plan: Plan, bodies: Mapping[int, bytes], *, hosts: int, beats: int, distinct: int = 4
) -> None:
    """A journal of many hosts that start from the same text; `distinct` of them differ, the others repeat those."""
    names = [f"node{number:04d}" for number in range(hosts)]
    start = (time.time_ns() // SECOND - beats) * SECOND
    every = {source: plan.sources[source].every or 1 for source in bodies}
    with Journal(raw, begin_of(names, plan, SECOND, started_ns=start)) as journal:
        for number in range(hosts):
            hello = {"kind": "python", "hostname": names[number], "boot_id": f"boot-{number}"}
            journal.event({"event": "connected", "hello": hello, "method": "ssh"}, host=number)
        ways = [bodies_over_time(bodies, every, beats, seed) for seed in range(min(distinct, hosts))]
        agents = [Beats() for _ in ways]
        for beat in range(beats):
            payloads = [one.payload(next(way)) for one, way in zip(agents, ways, strict=True)]
            wall = start + beat * SECOND
            for number in range(hosts):
                frame = Frame("S", beat + 1, 10**12 + beat * SECOND, wall + 50_000, payloads[number % len(ways)])
                journal.frame(number, wall + 900_000, frame)
        for number in range(hosts):
            journal.frame(number, wall + 900_000, Frame("E", beats + 1, frame.mono, frame.wall, b""))
        journal.event({"event": "end"})
