"""The fake transport follows its script, with the frames that real agents send."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from rollbook.collect.gather import gather
from rollbook.errors import Busy, Refused, TimedOut
from rollbook.hosts import Host
from rollbook.protocol.frames import Decoder, Frame
from rollbook.protocol.plan import Plan
from rollbook.protocol.visit import _verdict
from rollbook.records.hosts import HostResult, ReadingStatus
from rollbook.sources import catalogue
from rollbook.sources.identity import Identity
from rollbook.sources.meminfo import MemInfo
from rollbook.sources.net_class import Interface
from rollbook.sources.uptime import Uptime
from rollbook.testing import Fake, FakeHost, linux, pages_of


def collect(*names: str, timeout: float = 10.0, sources: tuple[str, ...] = (), **hosts: FakeHost) -> list[HostResult]:
    """Collect from scripted hosts, and from others by name; asserts that no agent is left running."""
    fake = Fake(hosts)
    plan = Plan.of([catalogue.source(name) for name in sources or ("identity", "uptime", "meminfo", "net_class")])
    targets = [Host(name) for name in (*hosts, *names)]
    results = asyncio.run(gather(targets, lambda _: fake, plan, timeout=timeout))
    assert not fake.living
    return results


def test_hosts_have_their_own_hardware() -> None:
    """Each host has the hardware of its script, wildcards included."""
    one, two = collect(
        one=FakeHost(pages=linux("one", memory_kib=1024, mtu=9000)),
        two=FakeHost(pages=linux("two", memory_kib=2048), python=None),
    )
    assert [result.status for result in (one, two)] == ["complete", "complete"], (one.reason, two.reason)
    assert [result.agent for result in (one, two)] == ["python 3.12.0", "sh"]
    for result, kib, mtu in ((one, 1024, 9000), (two, 2048, 1500)):
        identity, memory = result.fact(Identity), result.fact(MemInfo)
        assert identity is not None
        assert identity.hostname == result.name == result.hostname
        assert identity.machine_id == result.machine_id
        assert memory is not None
        assert memory.kib["MemTotal"] == kib
        assert [link.mtu for link in result.rows(Interface)] == [mtu]


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        (FakeHost(fails=Refused("key rejected")), "refused", "key rejected"),
        (FakeHost(fails=TimedOut("no answer"), delay=0.05), "timed-out", "no answer"),
        (FakeHost(silent=True), "timed-out", "no answer within 3 s; is the host up"),
        (FakeHost(silent=True, noise=b"Welcome!\n"), "timed-out", "its login shell hangs"),
        (FakeHost(garbage=True), "failed", "garbage instead of a greeting"),
        (FakeHost(pages=linux("x"), dies_after=0), "failed", "ended early, after 0 of 4 sources"),
        (FakeHost(pages=linux("x"), dies_after=2), "partial", "ended early, after 2 of 4 sources"),
        (FakeHost(pages=linux("x"), pace=1.2), "partial", "not finished within 3 s"),
        (FakeHost(pages=linux("x"), statuses={"/proc/meminfo": "timed-out"}), "partial", "meminfo timed-out"),
        (FakeHost(pages=linux("x"), statuses={"/proc/meminfo": "denied"}), "complete", ""),
        (FakeHost(pages=linux("x") | {"/proc/meminfo": "?"}), "partial", "meminfo failed"),
        (FakeHost(pages=linux("x") | {"/proc/meminfo": lambda _: str(1 / 0)}), "partial", "script of x failed: Z"),
        (FakeHost(pages=linux("x"), noise=b"Welcome!\n" * 5000, delay=0.1), "complete", ""),
        (FakeHost(pages=linux("x"), fails=Busy("too many"), failures=1), "complete", ""),
    ],
)  # fmt: skip
def test_faults(script: FakeHost, status: str, reason: str) -> None:
    """A fault gives the host its status and reason, and does not affect the other host."""
    timeout = 3.0 if script.silent or script.pace else 60.0
    x, fine, unknown = collect("unknown", timeout=timeout, x=script, fine=FakeHost(pages=linux("fine")))
    assert x.status == status
    assert reason in x.reason
    assert bool(x.reason) == (status != "complete")
    assert fine.status == "complete"
    assert (unknown.status, unknown.reason) == ("unreachable", "the name does not resolve")


def test_timeout_below_one_second() -> None:
    """The message has the fraction of a second; if all sources were read before the timeout, none is missing."""
    (silent,) = collect(timeout=0.2, x=FakeHost(silent=True))
    assert silent.reason.startswith("no answer within 0.2 s; ")
    result = HostResult(name="x", status="complete", facts={"thp": {}}, readings={"thp": ReadingStatus("ok", 0.0)})
    for requested, missing in ((1, ""), (3, "; 2 of 3 sources missing")):
        verdict = _verdict(result, "timed-out", "not finished within 0.2 s", [], requested)
        assert verdict == ("partial", f"not finished within 0.2 s{missing}")


def test_clock() -> None:
    """The offset of a clock that is ahead is measured, within its bound."""
    (result,) = collect(x=FakeHost(pages=linux("x"), ahead=90.0))
    assert result.clock is not None
    assert abs(result.clock.offset_ns + 90e9) <= result.clock.bound_ns


def test_truncated_pages() -> None:
    """A page beyond the source's limit is truncated, and the reading has this status."""
    (result,) = collect(x=FakeHost(pages=linux("x") | {"/proc/uptime": "1.0 1.0\n" + "x" * 1_000_000}))
    assert result.readings["uptime"].status == "truncated"
    many = {f"/sys/module/m{number}/version": f"{number:0300}\n" for number in range(1500)}
    (result,) = collect(x=FakeHost(pages=linux("x") | many), sources=("uptime", "modules"))
    assert (result.status, result.readings["modules"].status) == ("partial", "truncated")


def test_pages_of_a_directory(tmp_path: Path) -> None:
    """Files become pages with their content, symlinks with their target."""
    for path in ("proc", "sys/class/net"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "proc/uptime").write_text("5.00 7.00\n")
    (tmp_path / "sys/class/net/eth0").symlink_to("../../devices/virtual/net/eth0")
    pages = pages_of(tmp_path)
    assert pages == {"/proc/uptime": "5.00 7.00\n", "/sys/class/net/eth0": "../../devices/virtual/net/eth0"}
    (result,) = collect(x=FakeHost(pages=pages), sources=("uptime",))
    uptime = result.fact(Uptime)
    assert uptime is not None
    assert uptime.uptime_seconds == 5.0


@pytest.mark.parametrize("python", ["3.12.0", None])
def test_samples(python: str | None) -> None:
    """Sampled pages change with time; the Python agent sends deflated streams, the shell agent plain readings."""
    script = FakeHost(pages={"/proc/meminfo": lambda s: f"{s:.9f}\n", "/proc/loadavg": "1 1 1 1/1 1\n"}, python=python)
    plan = Plan.of([catalogue.source("meminfo"), catalogue.source("loadavg")])

    async def sample() -> list[Frame]:
        channel = await Fake({"x": script}).open(Host("x"))
        await channel.write(b"#begin\n#end\n" + plan.orders() + b"sample\t20000000\n")
        decoder, frames = Decoder(), list[Frame]()
        while len([frame for frame in frames if frame.kind in "SR"]) < 6:
            frames += decoder.feed(await channel.read())
        await channel.close()
        assert not decoder.lost
        return [frame for frame in frames if frame.kind in "SR"]

    frames = asyncio.run(sample())
    if python is None:
        assert all(frame.payload.split()[1] == b"sample" and frame.tag == "b" for frame in frames)
        return
    inflaters = {0: zlib.decompressobj(-15), 1: zlib.decompressobj(-15)}
    texts = [
        inflaters[number].decompress(data + b"\0\0\xff\xff")
        for frame in frames
        for number, flags, data in entries(frame.payload)
        if not flags & 2
    ]
    assert sum(b"/proc/loadavg" in text for text in texts) == 1  # it did not change
    moved = [float(text.split(b"\n")[1]) for text in texts if b"/proc/meminfo" in text]
    assert moved == sorted(set(moved))
    assert len(moved) == len(frames)


def entries(payload: bytes) -> list[tuple[int, int, bytes]]:
    """The entries of a sample frame: source id, flags, data."""
    found, at = [], 0
    while at < len(payload):
        numbers = []
        for _ in range(5):
            value = shift = 0
            while payload[at] & 128:
                value, shift, at = value | (payload[at] & 127) << shift, shift + 7, at + 1
            numbers.append(value | payload[at] << shift)
            at += 1
        found.append((numbers[0], numbers[1], payload[at : at + numbers[4]]))
        at += numbers[4]
    return found
