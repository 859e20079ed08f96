"""Recordings of scripted hosts: no host affects another, and the record has the status of each host."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import resource
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

import rollbook
from rollbook.agent.wire import binary, text
from rollbook.collect import backoff, file_limit, stream, streams
from rollbook.collect import command as command_of_run
from rollbook.collect.command import Command
from rollbook.collect.gather import gather
from rollbook.collect.recorder import Recorder
from rollbook.collect.session import Session
from rollbook.errors import Busy, Refused
from rollbook.hosts import Host
from rollbook.journal.reader import Reader
from rollbook.journal.samples import HostSamples, Segments
from rollbook.journal.survey import survey
from rollbook.protocol.plan import Plan
from rollbook.records.hosts import HostResult
from rollbook.records.record import RecordHosts
from rollbook.sources import catalogue
from rollbook.tables.derive import derive
from rollbook.testing import Fake, FakeHost, linux
from rollbook.testing.fake import FakeChannel
from rollbook.transports.launcher import Launcher
from tests.support.records import is_whole, was_read
from tests.support.waits import until_true

PLAN = Plan.of([catalogue.source(name) for name in ("identity", "uptime", "meminfo", "loadavg")])
ABOUT = {"type": "record", "stamp": "", "argv": [], "args": {}}
BUSY = "sshd closed the connection before login (MaxStartups)"
line = text("9")
Meanwhile = Callable[[Recorder], Awaitable[None]]


def record(
    raw: Path, fake: Fake, *, interval: float = 0.1, timeout: float = 60.0, during: Meanwhile | None = None
) -> RecordHosts:
    """Record all hosts of a script for 0.35 s, or while `during` runs; check that no agent remains."""

    async def main() -> None:
        hosts = [Host(name) for name in fake.hosts]
        async with Recorder(
            raw / "raw", hosts, lambda _: fake, PLAN, interval=interval, about=ABOUT, timeout=timeout
        ) as recorder:
            await recorder.ready()
            await (during(recorder) if during else asyncio.sleep(0.35))
            await recorder.end(facts=True)
        assert not fake.living

    asyncio.run(main())
    return derive(raw)[2]


def events(raw: Path, name: str) -> list[dict[str, object]]:
    """The events with this name in a journal."""
    found = [entry.event for entry in Reader(raw / "raw")]
    return [event for event in found if event is not None and event["event"] == name]


def has_frame(journal: Path, host: int, kind: str) -> bool:
    """Whether a journal has a frame of this kind from the host with this number."""
    frames = [entry.frame for entry in Reader(journal) if entry.host == host]
    return any(frame is not None and frame.kind == kind for frame in frames)


def test_a_host_that_is_busy_at_first(tmp_path: Path) -> None:
    """The host is retried before the run starts; it has start facts and a list of failed attempts."""
    busy = FakeHost(pages=linux("b"), fails=Busy(BUSY), failures=2)
    hosts = record(tmp_path, Fake({"a": FakeHost(pages=linux("a")), "b": busy}))
    assert [(host.status, len(host.facts)) for host in hosts.start] == [("complete", 4)] * 2
    assert [host.attempts for host in hosts.start] == [[], [BUSY] * 2]
    assert [is_whole(host) and bool(host.samples) for host in hosts.series] == [True] * 2


def test_start_facts_of_a_late_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the timeout the run starts without the host; its first successful connection delivers the facts."""
    monkeypatch.setattr(stream, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(backoff, "FIRST_BUSY", 10.0)
    fake = Fake({"a": FakeHost(pages=linux("a")), "b": FakeHost(pages=linux("b"), fails=Busy(BUSY), failures=2)})

    async def read(_: Recorder) -> None:
        await until_true(lambda: has_frame(tmp_path / "raw", 1, "D"))  # all facts were sent
        assert fake.opened["b"] == 3

    hosts = record(tmp_path, fake, timeout=2.0, during=read)
    assert len(events(tmp_path, "lost")) == 2
    assert [(host.status, len(host.facts)) for host in hosts.start] == [("complete", 4)] * 2
    assert [(host.status, len(host.facts)) for host in hosts.end] == [("complete", 4)] * 2


def test_a_journal_has_two_begin_events(tmp_path: Path) -> None:
    """The second one has the same content, so that damage to one does not lose the list of hosts."""
    record(tmp_path, Fake({"a": FakeHost(pages=linux("a"))}))
    first, again = events(tmp_path, "begin")
    assert {**first, "boot_ns": 0} == {**again, "boot_ns": 0}


def test_login_and_start_facts_share_a_timeout(tmp_path: Path) -> None:
    """A host that is slow to log in has only the rest of its timeout for its facts."""
    fake = Fake({"slow": FakeHost(pages=linux("slow"), delay=1.0, pace=3.0)})
    hosts = record(tmp_path, fake, interval=0, timeout=6.0)
    assert hosts.start[0].status == "partial"
    assert hosts.start[0].facts.keys() == {"identity"}


def test_progress_is_called_for_the_start_facts(tmp_path: Path) -> None:
    """It is called once for each host, with its status; later events of the host are not reported."""
    calls: list[str] = []

    class View:
        def begun(self, host: Host) -> None:
            calls.append(f"{host.name} begun")

        def done(self, result: HostResult) -> None:
            calls.append(f"{result.name} {result.status} {result.reason}".strip())

    scripts = {
        "good": FakeHost(pages=linux("good")),
        "slow": FakeHost(pages=linux("slow"), pace=1.5),
        "gone": FakeHost(fails=Refused("key rejected")),
    }
    fake = Fake(scripts)

    async def main() -> None:
        hosts = [Host(name) for name in scripts]
        async with Recorder(
            tmp_path, hosts, lambda _: fake, PLAN, interval=0.1, about=ABOUT, timeout=4.0, progress=View()
        ) as recorder:
            await recorder.ready()
            assert len(calls) == 6
            await until_true(lambda: has_frame(tmp_path, list(scripts).index("slow"), "S"))  # it came back

    asyncio.run(main())
    *others, slow = sorted(calls)
    assert others == ["gone begun", "gone refused key rejected", "good begun", "good complete", "slow begun"]
    assert re.fullmatch(
        "slow partial the start facts were not finished within 4 s; [1-4] of 4 sources missing", slow
    ), slow


def test_the_stand_in_is_pinged_before_it_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without sampling the stand-in sends frames only when pinged: one connection lasts for the whole run."""
    monkeypatch.setattr(stream, "SILENCE", 2.0)
    monkeypatch.setattr(stream, "CHECK_EVERY", 0.05)
    fake = Fake({"sh": FakeHost(pages=linux("sh"), python=None)})

    async def pinged(_: Recorder) -> None:
        # The clock is measured at the start and whenever half of that time was silent.
        await until_true(lambda: len(events(tmp_path, "clock")) >= 5)

    hosts = record(tmp_path, fake, interval=0, during=pinged)
    assert fake.opened["sh"] == 1
    assert not events(tmp_path, "lost")
    assert [host.status for host in hosts.start + hosts.end] == ["complete"] * 2


def test_late_pongs_do_not_lose_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a pong is late or lost, the connection is kept, and the clock is measured again later."""
    monkeypatch.setattr(stream, "SILENCE", 0.2)
    monkeypatch.setattr(stream, "CHECK_EVERY", 0.05)
    monkeypatch.setattr(stream, "CLOCK_EVERY", 0.6)

    class Late(Fake):
        """The pong after those of the start is lost."""

        async def open(self, host: Host) -> FakeChannel:
            channel = await super().open(host)
            obey = channel._obey
            monkeypatch.setattr(channel, "_obey", lambda order: order == ["ping", "9"] or obey(order))
            return channel

    fake = Late({"a": FakeHost(pages=linux("a"))})
    record(tmp_path, fake, during=lambda _: until_true(lambda: len(events(tmp_path, "clock")) > 1))
    assert fake.opened["a"] == 1
    assert not events(tmp_path, "lost")


def test_a_key_frame_is_requested_after_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One lost frame loses only its own sample and the next, not all until the next regular key frame."""
    orders: list[str] = []

    class Lossy(Fake):
        """The third sample is lost."""

        async def open(self, host: Host) -> FakeChannel:
            channel = await super().open(host)
            obey, answer, seen = channel._obey, channel._answers.feed_data, itertools.count()

            def log_order(order: Sequence[str]) -> None:
                orders.append(order[0])
                obey(order)

            monkeypatch.setattr(channel, "_obey", log_order)
            monkeypatch.setattr(
                channel._answers,
                "feed_data",
                lambda data: None if data[12:13] == b"S" and next(seen) == 2 else answer(data),
            )
            return channel

    async def sampled(_: Recorder) -> None:
        await until_true(lambda: "key" in orders and samples_so_far() > 12)

    def samples_so_far() -> int:
        return sum(entry.frame is not None and entry.frame.kind == "S" for entry in Reader(tmp_path / "raw"))

    record(tmp_path, Lossy({"a": FakeHost(pages=linux("a"))}), during=sampled)
    assert orders.count("key") == 1
    found = survey(tmp_path / "raw")
    files = Segments(found)
    samples = HostSamples(found, found.hosts[0], files)
    decoded = list(samples)
    files.close()
    assert len(found.hosts[0].restarts) == 1
    assert len(samples.undecodable) == 2, "both sources of the beat after the lost one"
    assert len(decoded) > 2 * 6


GARBAGE = "the host sends garbage; check what its login files print in sessions without a terminal"
BOMB = zlib.compress(b"1 start ok 1 \n" + bytes(15 << 20))
HOSTILE = {
    "digits": line(b"R", 0, 1, 1, b"9" * 5000 + b" start ok 1 \n"),
    "seconds": line(b"R", 0, 1, 1, b"1 start ok " + b"9" * 5000 + b" \n"),
    "more than the limit": line(b"Z", 0, 1, 1, zlib.compress(b"1 start ok 1 \nok 3000000 x\n" + bytes(3_000_000))),
    "bombs": b"".join(line(b"Z", seq, 1, 1, BOMB) for seq in range(3)),
    "phases": b"".join(line(b"D", seq, 1, 1, b"%d" % seq) for seq in range(50)) + line(b"D", 50, 1, 1, b"\xff"),
    "phases of readings": b"".join(line(b"R", n, 1, 1, b"1 %d ok 1 \nok 1 x\ny" % n) for n in range(50)),
    "pongs": b"".join(line(b"P", seq, 1, 1, b"%d" % seq) for seq in range(50)),
    "an impossible clock": line(b"P", 0, 1 << 63, 1 << 63, b"1") + binary(b"B", 1, (1 << 64) - 1, 1 << 63, b""),
    "numbers out of range": line(b"B", 9_999_999_999, 99_999_999_999_999_999_999, 1, b""),
    "hellos": b"".join(line(b"H", seq, 1, 1, b"") for seq in range(5)),
    "no such source": line(b"R", 0, 1, 1, b"99 start ok 1 \n"),
    "no samples": b"".join(line(b"S", seq, 1, 1, b"\xff" * 40) for seq in range(5)),
    "clocks that jump": b"".join(line(b"B", n, n % 2 * (1 << 61), n % 3 * (1 << 61), b"") for n in range(40)),
}


def test_hostile_frames_affect_no_other_host(tmp_path: Path) -> None:
    """If hosts send valid frames with hostile content, another host is complete and the record can be finished."""
    hostile = {name: FakeHost(pages=linux(name), says=frames) for name, frames in HOSTILE.items()}
    hosts = record(tmp_path, Fake({**hostile, "fine": FakeHost(pages=linux("fine"))}))
    assert (hosts.start[-1].status, hosts.end[-1].status, is_whole(hosts.series[-1])) == ("complete", "complete", True)
    results = {host.name: (host.status, host.reason) for host in hosts.start}
    assert results.pop("bombs") == ("failed", GARBAGE)
    assert {status for status, _ in results.values()} == {"complete"}, results


def test_unrequested_frames_are_not_kept() -> None:
    """Readings, ends of phases and pongs count only if they were requested."""
    unrequested = b"".join(HOSTILE[name] for name in ("phases of readings", "phases", "pongs"))
    numbered = b"".join(line(b"RDP"[n % 3 : n % 3 + 1], 1000 + n, 1, 1, b"1 p%d ok 1 \n" % n) for n in range(99))

    async def main() -> Session:
        fake = Fake({"x": FakeHost(pages=linux("x"), says=unrequested + numbered)})
        async with Session(Host("x"), fake, PLAN) as session:
            await session.greet()
            await session.read_all("now")
            clock = await session.measure_clock(2)
            assert clock is not None
            assert clock.round_trip_ns > 0
        return session

    session = asyncio.run(main())
    assert [reading.phase for reading in session.visit.readings] == ["now"] * 4
    assert session._phases == {b"now"}


def test_a_clock_that_is_set_back_during_a_ping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurement is not used: its round trip is below zero."""

    async def main() -> None:
        async with Session(Host("x"), Fake({"x": FakeHost(pages=linux("x"))}), PLAN) as session:
            await session.greet()
            arrivals = iter((-10 * 10**9, 10**6))

            async def pong() -> tuple[int, int]:
                sent = time.time_ns()
                return sent + next(arrivals), sent

            monkeypatch.setattr(session, "_await_pong", pong)
            clock = await session.measure_clock(2)
            assert clock is not None
            assert 0 < clock.round_trip_ns < 10**9

    asyncio.run(main())


def test_an_unexpected_error_fails_one_host(tmp_path: Path) -> None:
    """If a transport raises an unexpected error, only that host fails, with the error as its reason."""

    class Broken(Fake):
        async def open(self, host: Host) -> object:  # type: ignore[override]
            if host.name == "a":
                raise LookupError("a bug")
            return await super().open(host)

    hosts = record(tmp_path, Broken({"a": FakeHost(), "b": FakeHost(pages=linux("b"))}))
    assert [host.status for host in hosts.start] == ["failed", "complete"]
    assert "a bug" in hosts.start[0].reason


@pytest.mark.parametrize("before", [0.0, 0.3])
def test_a_journal_that_fails_ends_all_streams(tmp_path: Path, before: float) -> None:
    """If the record cannot be written, hosts are not reconnected, and the recording ends without an exception."""
    fake = Fake({"a": FakeHost(pages=linux("a"))})

    async def fail(recorder: Recorder) -> None:
        recorder.journal._failure = "no space"
        await asyncio.sleep(before)

    record(tmp_path, fake, during=fail)
    assert fake.opened["a"] == 1


def test_a_cancelled_end_closes_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the recorder is cancelled while it ends a launcher, the journal is closed and unlocked."""

    @contextlib.asynccontextmanager
    async def slow(*_: object) -> AsyncIterator[None]:
        yield
        await asyncio.sleep(60)

    monkeypatch.setattr(streams, "launching", slow)
    fake = Fake({"a": FakeHost(pages=linux("a"))})

    async def main() -> None:
        recorder = Recorder(tmp_path / "raw", [Host("a")], lambda _: fake, PLAN, interval=0, about=ABOUT)
        await recorder.__aenter__()
        await recorder.ready()
        leaving = asyncio.create_task(recorder.__aexit__())
        await asyncio.sleep(0.2)
        leaving.cancel()
        await asyncio.wait([leaving])

    asyncio.run(main())
    assert was_read(derive(tmp_path)[2].start[0])


@pytest.fixture
def low_file_limit() -> Iterator[int]:
    """Set a low limit on open files during the test: 50 more than are open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = 50 + len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    file_limit._before.clear()


def test_many_hosts_with_a_low_open_file_limit(tmp_path: Path, low_file_limit: int) -> None:
    """The limit is raised for hosts contacted in parallel; the recorded command has the original limit."""
    fake = Fake({f"n{number}": FakeHost(pages=linux("n")) for number in range(40)})
    hosts = [Host(name) for name in fake.hosts]
    asyncio.run(gather(hosts, lambda _: fake, Plan(()), fanout=20))
    once = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert once >= low_file_limit + 20 * 3
    record(tmp_path, fake, interval=0)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= once + 20 * 3

    async def limit() -> str:
        logs = (tmp_path / "out", tmp_path / "err")
        command = Command(["sh", "-c", "ulimit -n"], logs, {})
        assert await command.wait() == 0
        await command.drain()
        return logs[0].read_text()

    assert asyncio.run(limit()) == f"{low_file_limit}\n"


# Below the limit of a file's size, the log of a command that prints too much.
PRINTS_TOO_MUCH = """
import asyncio, os, resource, sys
from pathlib import Path
from rollbook.collect import command as command_of_run
from rollbook.collect.command import Command

async def main():
    argv = ["sh", "-c", "head -c 5000 /dev/zero | tr '\\\\0' x"]
    logs = Path(sys.argv[1]), Path("err")
    command = Command(argv, logs, {}, on_loss=lambda *loss: os.write(2, ": ".join(loss).encode()))
    await command.wait()
    await command.drain()

resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
asyncio.run(main())
"""


@pytest.mark.parametrize(("log", "reason"), [("out", "File too large"), ("none/out", "No such file or directory")])
def test_a_log_that_cannot_be_written(tmp_path: Path, log: str, reason: str) -> None:
    """The loss is reported and marked in the log, and our output is complete."""
    argv = [sys.executable, "-c", PRINTS_TOO_MUCH, log]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "x" * 5000, f"out: {reason}")
    if log == "out":
        text = (tmp_path / log).read_text()
        assert len(text) == 1000
        assert text.endswith(f"x\n[rollbook: log truncated here, {reason}]\n")


def test_a_record_notes_an_incomplete_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata name the log and the reason, even if no marker could be written."""
    monkeypatch.setattr(command_of_run, "RESERVE", 1 << 62)
    monkeypatch.setattr(command_of_run, "_append_marker", lambda *_: None)
    recording = rollbook.run(["echo", "one"], results_dir=tmp_path, interval=0, report=False)
    assert "stdout.log is incomplete: the disk is nearly full" in recording.record.metadata["notes"]


def test_launcher_with_a_low_open_file_limit(low_file_limit: int) -> None:
    """The limit is raised for all agents of a launcher, which connect at the same time, whatever the fan-out is."""

    class Failing(Launcher):
        async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
            del hosts, program
            return ["false"]

        def variables(self) -> tuple[str, str]:
            return "RANK", "NODE"

    launcher = Failing()
    results = asyncio.run(gather([Host(f"n{n}") for n in range(90)], lambda _: launcher, Plan(()), fanout=2))
    assert {result.status for result in results} == {"failed"}
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= low_file_limit + 90 * 4


def test_launchers_are_closed_if_exit_is_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the recorder is cancelled while it exits, launchers are still closed."""
    closed = []

    class Unused(Launcher):
        async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
            del hosts, program
            return ["false"]

        def variables(self) -> tuple[str, str]:
            return "RANK", "NODE"

        async def close(self) -> None:
            closed.append(self)
            await super().close()

    async def main() -> None:
        launcher = Unused()
        recorder = Recorder(tmp_path, [Host("a")], lambda _: launcher, Plan(()), interval=0.0, about=ABOUT)
        await recorder.__aenter__()
        monkeypatch.setattr(Recorder, "end", lambda *_, **_options: asyncio.sleep(60))
        leaving = asyncio.create_task(recorder.__aexit__())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        assert closed == [launcher]

    asyncio.run(main())
