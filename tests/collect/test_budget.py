"""Isolation between hosts: one that sends without limit is disconnected with a reason, and delays no other host."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rollbook
from rollbook.agent.wire import binary
from rollbook.collect import gather
from rollbook.collect.budget import MIB, Budget, Meter
from rollbook.collect.recorder import Recorder
from rollbook.collect.session import Session
from rollbook.errors import AgentFailed, ProtocolError, UsageError
from rollbook.hosts import Host
from rollbook.journal.reader import Reader
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.samples import FLUSH_END, Unpacker, inflated_size
from rollbook.protocol.varint import put_varint
from rollbook.protocol.visit import Visit
from rollbook.records.hosts import HostResult
from rollbook.sources import catalogue
from rollbook.testing import Fake, FakeHost, linux
from rollbook.transports.base import Ending
from tests.support.waits import SECONDS, until_true

PLAN = Plan.of([catalogue.source(name) for name in ("identity", "uptime", "meminfo", "loadavg")])
EVERYTHING = Plan.of(catalogue.load())
ABOUT = {"type": "record", "stamp": "", "argv": [], "args": {}}
HELLO = binary(b"H", 0, 1, 1, b"agent=1\nkind=python\npython=3.11\nhostname=x\n")
UNLIMITED = Budget(*[1e15] * 8)
READING = Frame("R", 0, 1, 1, b"")


def entry(source: int, flags: int, data: bytes) -> bytes:
    """Encode one source of a sample frame."""
    head = bytearray()
    for value in (source, flags, 0, 0, len(data)):
        put_varint(head, value)
    return bytes(head) + data


def bomb(size: int) -> bytes:
    """Deflated zeros as the data of a sample."""
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (stream.compress(bytes(size)) + stream.flush(zlib.Z_SYNC_FLUSH))[:-4]


class Flood(Fake):
    """A transport with one host that always has more data; `reads` counts the reads."""

    def __init__(self, frames: Iterator[bytes], reads: int) -> None:
        super().__init__({"fine": FakeHost(pages=linux("fine"))})
        self.frames, self.most, self.reads = frames, reads, 0

    async def open(self, host: Host) -> FloodChannel:  # type: ignore[override]
        """Open a channel to the flooding host or to the scripted one."""
        return FloodChannel(self) if host.name == "flood" else await super().open(host)  # type: ignore[return-value]


class FloodChannel:
    """Returns data on every read, up to a maximum that bounds the test's duration."""

    def __init__(self, flood: Flood) -> None:
        self._flood = flood
        self._greeted = self._closed = False

    async def read(self) -> bytes:
        """Return the next chunk."""
        if not self._greeted:
            self._greeted = True
            return HELLO
        self._flood.reads += 1
        return b"" if self._closed or self._flood.reads > self._flood.most else next(self._flood.frames)

    async def write(self, data: bytes) -> None:
        """Ignore orders."""

    async def close(self, grace: float = 0.0) -> Ending:
        """End immediately."""
        del grace
        self._closed = True
        return Ending(0, "")


def endless_frames(kind: bytes, payload: bytes, count: int) -> Iterator[bytes]:
    """Endless chunks, each with this number of valid frames."""
    seq = itertools.count(1)
    while True:
        yield b"".join(binary(kind, next(seq), 1, 1, payload) for _ in range(count))


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (endless_frames(b"B", b"", 2000), "frames per second"),
        (endless_frames(b"B", bytes(MIB), 1), "MiB per second"),
        (endless_frames(b"S", entry(2, 1, bomb(12 * MIB)), 1), "MiB of inflated data per second"),
    ],
    ids=["frames", "bytes", "bombs"],
)
def test_flooding_hosts_are_disconnected(tmp_path: Path, frames: Iterator[bytes], reason: str) -> None:
    """The recording becomes ready, the other host is sampled, and the journal stays small."""
    flood = Flood(frames, 1000)

    async def main() -> None:
        hosts = [Host("flood"), Host("fine")]
        async with Recorder(tmp_path, hosts, lambda _: flood, PLAN, interval=0.1, about=ABOUT, timeout=30) as recorder:
            await asyncio.wait_for(recorder.ready(), 20)
            await until_true(lambda: samples_of(1) > 1)
            await recorder.end(facts=True)

    def samples_of(host: int) -> int:
        frames = (each.frame for each in Reader(tmp_path) if each.host == host)
        return sum(frame is not None and frame.kind == "S" for frame in frames)

    asyncio.run(main())
    assert flood.reads < 200
    entries = list(Reader(tmp_path))
    lost = [each.event for each in entries if each.event and each.event["event"] == "lost"]
    assert {reason in str(event["reason"]) for event in lost} == {True}
    assert str(lost[0]["reason"]).startswith("disconnected: the host sends more than ")
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 64 * MIB


def test_other_work_runs_between_reads() -> None:
    """While a host always has data, the event loop runs other tasks after each piece of it."""
    flood, turns = Flood(endless_frames(b"B", bytes(1000), 200), 20), 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def main() -> None:
        counting = asyncio.create_task(count())
        async with Session(Host("flood"), flood, PLAN, meter=Meter(UNLIMITED)) as session:
            with pytest.raises(AgentFailed, match="the agent"):
                await session.wait_for_loss()
        counting.cancel()

    asyncio.run(main())
    assert turns > 20 * 3  # each read has more than three pieces


@pytest.mark.parametrize("recorded", [True, False])
def test_parsing_does_not_block_the_event_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorded: bool) -> None:
    """While the facts of one host are parsed, the event loop runs other tasks."""
    served, parse = threading.Event(), Visit.result
    monkeypatch.setattr(gather, "LARGE_TEXT", 0)

    def result(visit: Visit, *arguments: Any) -> HostResult:
        assert served.wait(SECONDS)
        return parse(visit, *arguments)

    monkeypatch.setattr(Visit, "result", result)
    fake, found = Fake({"fine": FakeHost(pages=linux("fine"))}), list[HostResult]()

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.05, served.set)
        if not recorded:
            found.extend(await gather.gather([Host("fine")], lambda _: fake, PLAN))
            return
        progress = SimpleNamespace(begun=lambda _: None, done=found.append)
        options: dict[str, Any] = {"interval": 0.1, "about": ABOUT, "timeout": SECONDS, "progress": progress}
        async with Recorder(tmp_path, [Host("fine")], lambda _: fake, PLAN, **options) as recorder:
            await recorder.ready()
            await until_true(lambda: found)

    asyncio.run(main())
    assert [host.status for host in found] == ["complete"]


def test_rate_and_total_limits() -> None:
    """Rates recover with time; the total does not, until a mark raises it."""
    now = 0.0
    budget = Budget(10, 100, 1e9, 1e9, 1e9, 1e9, 150, 1, beat_bytes=20)
    meter = Meter(budget, lambda: now)
    meter.receive(100)
    with pytest.raises(AgentFailed, match="per second"):
        meter.receive(1)
    now = 4.0
    meter.receive(40)
    now = 6.0
    with pytest.raises(AgentFailed, match="in total"):
        meter.receive(17)
    meter.mark()
    meter.receive(10)


def test_host_budget_option(tmp_path: Path) -> None:
    """`host_budget` scales all limits: with 0.001 even a real agent sends too much; zero is refused."""
    with rollbook.record(results_dir=tmp_path, interval=0.2, report=False, host_budget=0.001) as recording:
        pass
    assert "disconnected: the host sends more than" in recording.record.hosts.outcome[0].reason
    with pytest.raises(UsageError, match="host_budget must be positive"):
        rollbook.record(results_dir=tmp_path, host_budget=0)


def test_real_hosts_stay_within_the_budget() -> None:
    """The budget is enough for a stand-in with a megabyte of text per beat, at any interval, and facts at both ends."""
    for interval in (0.1, 1.0, 10.0, 60.0):
        now = 0.0
        meter = Meter(Budget.of(EVERYTHING, interval), lambda: now)  # noqa: B023 - called in this iteration only
        for _ in EVERYTHING.sources:
            meter.frame(READING)
            meter.receive(200_000)
            meter.inflate(400_000)
        for _ in range(3000):
            now += max(1.0, interval)
            for _ in range(22):
                meter.frame(READING)
            meter.receive(800_000)
            meter.inflate(1_000_000)
        for _ in EVERYTHING.sources:
            meter.frame(READING)
            meter.receive(200_000)


def test_total_of_a_long_recording() -> None:
    """A host that sends as fast as allowed for an hour stays below 512 MiB at an interval of 10 s."""
    now, sent = 0.0, 0
    meter = Meter(Budget.of(EVERYTHING, 10.0), lambda: now)
    while now < 3600:
        now += 0.1
        with contextlib.suppress(AgentFailed):
            meter.receive(MIB)
            sent += MIB
    assert sent < 512 * MIB


def test_inflated_size_in_mid_stream() -> None:
    """The inflated size is exact without the previous frames, for both window sizes."""
    for window in (-13, -15):
        stream = zlib.compressobj(4, zlib.DEFLATED, window, 8, zlib.Z_FIXED)
        for beat in range(5):
            text = b"".join(b"cpu%d %d %d\n" % (cpu, beat * cpu * 7919, beat) for cpu in range(300))
            data = (stream.compress(text) + stream.flush(zlib.Z_SYNC_FLUSH))[: -len(FLUSH_END)]
            frame = entry(0, 0, data) + entry(1, 2, b"")
            assert inflated_size(frame, 1 << 20) == len(text)
            assert inflated_size(frame, 100) == 101
    with pytest.raises(ProtocolError):
        inflated_size(entry(0, 0, b"\xff" * 40), 1 << 20)


def test_inflated_size_stops_at_the_limit() -> None:
    """A megabyte that inflates to a gigabyte is inflated only up to the limit."""
    meter = Meter(Budget.of(EVERYTHING, 1.0))
    frame = Frame("S", 0, 1, 1, entry(2, 1, (bomb(MIB) + FLUSH_END) * 1000))
    began = time.process_time()
    with pytest.raises(AgentFailed, match="inflated"):
        meter.frame(frame)
    assert time.process_time() - began < 2


def test_repeated_and_oversized_sources_are_rejected() -> None:
    """They are not decoded, so the journal of a hostile host cannot exhaust memory."""
    unpacker, lost = Unpacker(PLAN), list[tuple[int, int]]()
    unpacker.on_lost = lambda source, ts: lost.append((source, ts))
    with pytest.raises(ProtocolError, match="repeated"):
        list(unpacker.beat(entry(2, 1, bomb(100)) * 2, 0, 0))
    assert not list(unpacker.beat(entry(2, 1, bomb(PLAN.size_limits[2] + 1)), 0, 0))
    assert lost == [(2, 0)]
    assert len(list(unpacker.beat(entry(2, 1, bomb(PLAN.size_limits[2])), 0, 0))) == 1
