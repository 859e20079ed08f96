"""Recordings of scripted hosts: what one of them does costs no other, and the record says what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from rollbook.agent.wire import binary, text
from rollbook.collect import file_limit as descriptors
from rollbook.collect import stream, streams
from rollbook.collect.command import Command
from rollbook.collect.gather import gather
from rollbook.collect.recorder import Recorder
from rollbook.collect.session import Session
from rollbook.errors import Busy, Refused
from rollbook.hosts import Host
from rollbook.journal.log import read
from rollbook.protocol.plan import Plan
from rollbook.records.hosts import HostResult
from rollbook.records.record import RecordHosts
from rollbook.sources import catalogue
from rollbook.tables.derive import derive
from rollbook.testing import Fake, FakeHost, linux
from rollbook.testing.fake import FakeChannel
from rollbook.transports.launcher import Launcher

PLAN = Plan.of([catalogue.source(name) for name in ("identity", "uptime", "meminfo", "loadavg")])
ABOUT = {"type": "record", "stamp": "", "argv": [], "args": {}}
TURNED_AWAY = "sshd closed the connection before login (MaxStartups)"
line = text("9")
Meanwhile = Callable[[Recorder], Awaitable[None]]


def record(
    raw: Path, fake: Fake, *, interval: float = 0.1, timeout: float = 5.0, during: Meanwhile | None = None
) -> RecordHosts:
    """Record all hosts of a script for a moment, or while something is done; no agent may live on."""

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
    """The events of that name in a journal."""
    found = [entry.event for entry in read(raw / "raw")]
    return [event for event in found if event is not None and event["event"] == name]


def test_a_host_that_turns_us_away_at_first(tmp_path: Path) -> None:
    """It is tried again before the run begins, gives its start facts, and says what happened."""
    busy = FakeHost(pages=linux("b"), fails=Busy(TURNED_AWAY), failures=2)
    hosts = record(tmp_path, Fake({"a": FakeHost(pages=linux("a")), "b": busy}))
    assert [(host.status, len(host.facts)) for host in hosts.start] == [("complete", 4)] * 2
    assert [host.attempts for host in hosts.start] == [[], [TURNED_AWAY] * 2]
    assert [(host.status, bool(host.samples)) for host in hosts.series] == [("complete", True)] * 2


def test_a_host_that_comes_late_gives_its_start_facts_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its time is up the run begins without it; its first connection that works brings the facts."""
    monkeypatch.setattr(stream, "FIRST_WAIT", 0.05)
    monkeypatch.setattr(stream, "FIRST_BUSY", 10.0)
    fake = Fake({"a": FakeHost(pages=linux("a")), "b": FakeHost(pages=linux("b"), fails=Busy(TURNED_AWAY), failures=2)})
    hosts = record(tmp_path, fake, timeout=2.0, during=lambda _: asyncio.sleep(0.8))
    assert len(events(tmp_path, "lost")) == 2
    assert [(host.status, len(host.facts)) for host in hosts.start] == [("complete", 4)] * 2
    assert [(host.status, len(host.facts)) for host in hosts.end] == [("complete", 4)] * 2


def test_a_journal_begins_twice(tmp_path: Path) -> None:
    """Far apart, so that no damage at one place takes from all entries whose they are."""
    record(tmp_path, Fake({"a": FakeHost(pages=linux("a"))}))
    first, again = events(tmp_path, "begin")
    assert first == again


def test_login_and_start_facts_have_one_time_together(tmp_path: Path) -> None:
    """A host that takes most of its time to answer has the rest for its facts, and holds up the run no longer."""
    fake = Fake({"slow": FakeHost(pages=linux("slow"), delay=0.5, pace=0.5)})
    hosts = record(tmp_path, fake, interval=0, timeout=1.2)
    assert hosts.start[0].status == "partial"
    assert hosts.start[0].facts.keys() == {"identity"}


def test_who_looks_on_is_told_of_the_start_facts(tmp_path: Path) -> None:
    """Once of each host, with what became of it; what happens to it later is another matter."""
    told: list[str] = []

    class View:
        def begun(self, host: Host) -> None:
            told.append(f"{host.name} begun")

        def done(self, record: HostResult) -> None:
            told.append(f"{record.name} {record.status} {record.reason}".strip())

    scripts = {
        "good": FakeHost(pages=linux("good")),
        "slow": FakeHost(pages=linux("slow"), pace=0.5),
        "gone": FakeHost(fails=Refused("key rejected")),
    }
    fake = Fake(scripts)

    async def main() -> None:
        hosts = [Host(name) for name in scripts]
        async with Recorder(
            tmp_path, hosts, lambda _: fake, PLAN, interval=0.1, about=ABOUT, timeout=1.2, progress=View()
        ) as recorder:
            await recorder.ready()
            assert len(told) == 6
            await asyncio.sleep(1.2)

    asyncio.run(main())
    *others, slow = sorted(told)
    assert others == ["gone begun", "gone refused key rejected", "good begun", "good complete", "slow begun"]
    assert re.fullmatch(
        "slow partial the start facts were not finished within 1.2 s; [1-4] of 4 sources missing", slow
    ), slow


def test_the_stand_in_is_asked_before_it_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says nothing by itself where no series is taken: one connection lasts for the whole run all the same."""
    monkeypatch.setattr(stream, "SILENCE", 0.4)
    monkeypatch.setattr(stream, "LOOK_EVERY", 0.05)
    fake = Fake({"sh": FakeHost(pages=linux("sh"), python=None)})
    hosts = record(tmp_path, fake, interval=0, during=lambda _: asyncio.sleep(1.0))
    assert fake.opened["sh"] == 1
    assert not events(tmp_path, "lost")
    assert [host.status for host in hosts.start + hosts.end] == ["complete"] * 2


def test_a_host_that_speaks_is_not_given_up_for_late_pongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait behind its samples, or are lost: one connection lasts, and the clock is measured again later."""
    monkeypatch.setattr(stream, "SILENCE", 0.2)
    monkeypatch.setattr(stream, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(stream, "CLOCK_EVERY", 0.6)

    class Late(Fake):
        """The pong after those of the start never comes."""

        async def open(self, host: Host) -> FakeChannel:
            channel = await super().open(host)
            obey = channel._obey
            monkeypatch.setattr(channel, "_obey", lambda order: order == ["ping", "9"] or obey(order))
            return channel

    fake = Late({"a": FakeHost(pages=linux("a"))})
    record(tmp_path, fake, during=lambda _: asyncio.sleep(2.5))
    assert fake.opened["a"] == 1
    assert not events(tmp_path, "lost")
    assert len(events(tmp_path, "clock")) > 1


GARBAGE = "the host sends garbage; look at what its login files print for sessions without a terminal"
BOMB = zlib.compress(b"1 start ok 1 \n" + bytes(15 << 20))
HOSTILE = {
    "digits": line(b"R", 0, 1, 1, b"9" * 5000 + b" start ok 1 \n"),
    "seconds": line(b"R", 0, 1, 1, b"1 start ok " + b"9" * 5000 + b" \n"),
    "more than asked for": line(b"Z", 0, 1, 1, zlib.compress(b"1 start ok 1 \nok 3000000 x\n" + bytes(3_000_000))),
    "bombs": b"".join(line(b"Z", seq, 1, 1, BOMB) for seq in range(3)),
    "phases": b"".join(line(b"D", seq, 1, 1, b"%d" % seq) for seq in range(50)) + line(b"D", 50, 1, 1, b"\xff"),
    "phases of readings": b"".join(line(b"R", n, 1, 1, b"1 %d ok 1 \nok 1 x\ny" % n) for n in range(50)),
    "pongs": b"".join(line(b"P", seq, 1, 1, b"%d" % seq) for seq in range(50)),
    "a clock that no host has": line(b"P", 0, 1 << 63, 1 << 63, b"1") + binary(b"B", 1, (1 << 64) - 1, 1 << 63, b""),
    "numbers out of range": line(b"B", 9_999_999_999, 99_999_999_999_999_999_999, 1, b""),
    "hellos": b"".join(line(b"H", seq, 1, 1, b"") for seq in range(5)),
    "no such source": line(b"R", 0, 1, 1, b"99 start ok 1 \n"),
    "no samples": b"".join(line(b"S", seq, 1, 1, b"\xff" * 40) for seq in range(5)),
    "clocks that jump": b"".join(line(b"B", n, n % 2 * (1 << 61), n % 3 * (1 << 61), b"") for n in range(40)),
}


def test_what_hosts_say_costs_no_other(tmp_path: Path) -> None:
    """Frames that are whole and mean nothing, or harm: the honest host is complete and the record can be finished."""
    evil = {name: FakeHost(pages=linux(name), says=said) for name, said in HOSTILE.items()}
    hosts = record(tmp_path, Fake({**evil, "fine": FakeHost(pages=linux("fine"))}))
    assert [host.status for host in (hosts.start[-1], hosts.end[-1], hosts.series[-1])] == ["complete"] * 3
    became = {host.name: (host.status, host.reason) for host in hosts.start}
    assert became.pop("bombs") == ("failed", GARBAGE)
    assert {status for status, _ in became.values()} == {"complete"}, became


def test_nothing_that_was_not_asked_for_is_kept() -> None:
    """Readings, ends of phases and answers to pings are counted as what they are, or as nothing."""
    unasked = b"".join(HOSTILE[name] for name in ("phases of readings", "phases", "pongs"))
    numbered = b"".join(line(b"RDP"[n % 3 : n % 3 + 1], 1000 + n, 1, 1, b"1 p%d ok 1 \n" % n) for n in range(99))

    async def main() -> Session:
        fake = Fake({"x": FakeHost(pages=linux("x"), says=unasked + numbered)})
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


def test_an_error_of_ours_is_the_hosts_failure(tmp_path: Path) -> None:
    """A transport that raises what nobody expects costs its own host; that is tried again, as after any loss."""

    class Broken(Fake):
        async def open(self, host: Host) -> object:  # type: ignore[override]
            if host.name == "a":
                raise LookupError("a slip")
            return await super().open(host)

    hosts = record(tmp_path, Broken({"a": FakeHost(), "b": FakeHost(pages=linux("b"))}))
    assert [host.status for host in hosts.start] == ["failed", "complete"]
    assert "a slip" in hosts.start[0].reason


@pytest.mark.parametrize("before", [0.0, 0.3])
def test_a_journal_that_fails_ends_all_streams(tmp_path: Path, before: float) -> None:
    """Nobody is visited again and again for a record that cannot be written; the end comes without an error."""
    fake = Fake({"a": FakeHost(pages=linux("a"))})

    async def fail(recorder: Recorder) -> None:
        recorder.journal._failure = "no space"
        await asyncio.sleep(before)

    record(tmp_path, fake, during=fail)
    assert fake.opened["a"] == 1


def test_who_is_in_a_hurry_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled while a launcher is being ended, the journal is closed all the same."""

    @contextlib.asynccontextmanager
    async def lasting(*_: object) -> AsyncIterator[None]:
        yield
        await asyncio.sleep(60)

    monkeypatch.setattr(streams, "launching", lasting)
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
    assert derive(tmp_path)[2].start[0].status == "complete"


@pytest.fixture
def few_files() -> Iterator[int]:
    """A low limit on open files, for as long as the test takes."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, before[1]))
    yield 64
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    descriptors._before.clear()


def test_many_hosts_at_a_low_limit(tmp_path: Path, few_files: int) -> None:
    """There is room for the files of as many hosts as are held at once; the command finds the limit that it would."""
    fake = Fake({f"n{number}": FakeHost(pages=linux("n")) for number in range(40)})
    hosts = [Host(name) for name in fake.hosts]
    asyncio.run(gather(hosts, lambda _: fake, Plan(()), fanout=20))
    once = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert once >= few_files + 20 * 3
    record(tmp_path, fake, interval=0)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= once + 20 * 3

    async def limit() -> str:
        logs = (tmp_path / "out", tmp_path / "err")
        command = Command(["sh", "-c", "ulimit -n"], logs, {})
        assert await command.wait() == 0
        await command.drained()
        return logs[0].read_text()

    assert asyncio.run(limit()) == f"{few_files}\n"


def test_all_hosts_of_a_launcher_at_a_low_limit(few_files: int) -> None:
    """Its agents come back all at once, however few hosts are looked at side by side."""

    class Nobody(Launcher):
        async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
            del hosts, program
            return ["false"]

        def variables(self) -> tuple[str, str]:
            return "RANK", "NODE"

    launcher = Nobody()
    records = asyncio.run(gather([Host(f"n{n}") for n in range(90)], lambda _: launcher, Plan(()), fanout=2))
    assert {record.status for record in records} == {"failed"}
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= few_files + 90 * 4
