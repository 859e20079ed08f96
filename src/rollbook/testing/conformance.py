"""Conformance checks: what Rollbook expects of every transport.

    check_transport(MyTransport(...), Host("node1"))

runs them all against a Linux host where the agent, or its stand-in, can run. For pytest, parametrize over `CHECKS`
and call `run_check(check, transport, host)`: each is then a test of its own. A check that fails raises AssertionError,
which names the broken promise.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Self

from rollbook.agent import stand_in
from rollbook.collect.gather import read_host
from rollbook.collect.session import Session
from rollbook.errors import TransportError
from rollbook.hosts import Host
from rollbook.protocol.frames import Decoder, Frame
from rollbook.protocol.plan import Plan
from rollbook.sources import catalogue
from rollbook.sources.base import File
from rollbook.transports.base import Ending, Transport

__all__ = ["CHECKS", "Check", "check_transport", "run_check"]

Check = Callable[[Transport, Host], Awaitable[None]]

SIDE_BY_SIDE = 8  # by default, sshd rejects some of more than ten simultaneous logins
SOON = 10.0  # seconds in which an agent must notice that its channel is closed, and in which a call must return
MISSING = "/proc/no-such-file-of-rollbook"


def check_transport(transport: Transport, host: Host, *, broken: Host | None = None, timeout: float = 60.0) -> None:
    """Run every check against a transport; `broken` is a host that it cannot reach."""
    for check in CHECKS:
        run_check(check, transport, host, timeout=timeout)
    if broken is not None:
        run_check(explains_what_it_cannot_reach, transport, broken, timeout=timeout)


def run_check(check: Check, transport: Transport, host: Host, *, timeout: float = 60.0) -> None:
    """Run one check in an event loop of its own; a check that hangs fails."""

    async def within_time() -> None:
        async with asyncio.timeout(timeout):
            await check(transport, host)

    promise = (check.__doc__ or "").strip().partition("\n")[0]
    try:
        asyncio.run(within_time())
    except TimeoutError:
        raise AssertionError(f"{transport.name}: not over after {timeout:g} s: {promise}") from None
    except TransportError as error:
        raise AssertionError(f"{transport.name}: {error.status}, {error}: {promise}") from error
    except AssertionError as error:
        raise AssertionError(f"{transport.name}: {error}: {promise}") from error


async def greets(transport: Transport, host: Host) -> None:
    """The agent sends its hello when a channel is opened."""
    async with Session(host, transport, Plan(())) as session:
        await session.greet()
        missing = {"agent", "kind", "pid", "hostname"} - session.visit.hello.keys()
        assert not missing, f"the hello has no {', '.join(sorted(missing))}"
        await session.stop()
        assert session.visit.goodbye, "there was no goodbye"


async def reads_a_plan(transport: Transport, host: Host) -> None:
    """A plan is read completely: no frame is lost or damaged, and missing files are reported as absent."""
    named = [catalogue.source(name) for name in ("uptime", "version", "loadavg", "meminfo")]
    plan = Plan.of([*named, File(MISSING, _text)])
    async with Session(host, transport, plan) as session:
        await session.greet()
        await session.read_all("now")
        await session.stop()
    statuses = [reading.status for reading in session.visit.readings]
    assert statuses == ["ok"] * len(named) + ["absent"], f"the readings are {', '.join(statuses)}"
    for reading in session.visit.readings[:-1]:
        reading.parse()
    damage = session.decoder.lost + session.decoder.damaged
    assert not damage, f"{damage} frames are lost or damaged"


async def answers_pings(transport: Transport, host: Host) -> None:
    """Every ping is answered once and in order, even after more orders than a pipe can hold."""
    async with _Talk(transport, host) as talk:
        await talk.channel.write(b"clock\t0\n" * 16384)
        for number in (b"1", b"2", b"3"):
            await talk.channel.write(b"ping\t%s\n" % number)
            assert (await talk.until("P")).payload == number, "a pong does not match its ping"


async def says_goodbye(transport: Transport, host: Host) -> None:
    """A stopped agent sends its goodbye, and then the channel ends."""
    async with _Talk(transport, host) as talk:
        await talk.channel.write(b"stop\n")
        await talk.until("E")
        assert not await talk.channel.read(), "something came after the goodbye"


async def ends_when_closed(transport: Transport, host: Host) -> None:
    """An agent exits by itself soon after its channel is closed."""
    async with _Talk(transport, host) as talk:
        began = time.monotonic()
        await talk.close(grace=2 * SOON)
        assert time.monotonic() - began < SOON, "the agent had to be ended"


async def swallows_orders_to_the_dead(transport: Transport, host: Host) -> None:
    """Orders to an agent that has exited are discarded, before and after the channel is closed."""
    async with _Talk(transport, host) as talk:
        await talk.channel.write(b"stop\n")
        while await talk.channel.read():
            pass
        for _ in range(16):
            await talk.channel.write(b"ping\tnobody\n" * 8192)
    await talk.channel.write(b"ping\tnobody\n")


async def closes_at_once(transport: Transport, host: Host) -> None:
    """Closing waits neither for a busy agent, nor for unread answers, nor for a reader."""
    plan = Plan.of([catalogue.source(name) for name in ("meminfo", "cpuinfo", "vmstat", "version")])
    for orders in (b"", plan.orders() + b"".join(b"go\t%d\n" % number for number in range(200))):
        async with _Talk(transport, host) as talk:
            await talk.channel.write(orders)
            reader = asyncio.create_task(talk.channel.read())
            await asyncio.sleep(0.05)
            began = time.monotonic()
            await talk.close(grace=0.0)
            assert time.monotonic() - began < SOON, "closing took long"
            await asyncio.wait([reader], timeout=SOON)
            assert reader.done(), "a reader was left waiting on a closed channel"
            reader.exception()


async def gives_up_in_time(transport: Transport, host: Host) -> None:
    """A visit with a very short timeout ends soon, and its host has a status."""
    for timeout in (0.0, 0.02, 0.1):
        began = time.monotonic()
        result, _ = await read_host(host, transport, Plan.of(catalogue.load()), timeout, asyncio.Event())
        assert time.monotonic() - began < timeout + SOON, f"a timeout of {timeout} s was exceeded"
        assert result.status in ("timed-out", "partial", "complete"), f"the status of the host is {result.status}"


async def keeps_channels_apart(transport: Transport, host: Host) -> None:
    """Parallel channels do not mix, and closing one does not affect the others."""

    async def one(number: int) -> bytes:
        async with _Talk(transport, host) as talk:
            for turn in range(3):
                text = b"%d-%d" % (number, turn)
                await talk.channel.write(b"ping\t%s\n" % text)
                assert (await talk.until("P")).payload == text, "a pong of another channel was received"
        return talk.hello

    hellos = await asyncio.gather(*(one(number) for number in range(SIDE_BY_SIDE)))
    assert len(set(hellos)) == SIDE_BY_SIDE, "two channels have the same agent"


async def explains_early_ends(transport: Transport, host: Host) -> None:
    """A failure before the first frame is a TransportError with a readable reason, whatever was received."""
    for code, stderr, heard in (
        (1, "", b""),
        (255, "", b""),
        (127, "sh: x: not found\n", b""),
        (0, "", b"\xff\x00\x1b"),
    ):
        error = transport.explain(host, Ending(code, stderr), heard)
        assert isinstance(error, TransportError), f"{error!r} is not a TransportError"
        assert str(error).strip(), f"exit code {code} has no reason"


async def explains_what_it_cannot_reach(transport: Transport, host: Host) -> None:
    """A host that cannot be reached raises a TransportError with a readable reason."""
    reason = None
    try:
        async with Session(host, transport, Plan(())) as session:
            await session.greet()
    except TransportError as error:
        reason = str(error)
    assert reason is not None, "the host was reached"
    assert reason.strip(), "there is no reason"


CHECKS: tuple[Check, ...] = (
    greets,
    reads_a_plan,
    answers_pings,
    says_goodbye,
    ends_when_closed,
    swallows_orders_to_the_dead,
    closes_at_once,
    gives_up_in_time,
    keeps_channels_apart,
    explains_early_ends,
)


class _Talk:
    """A channel whose agent has sent its hello; closed at the end."""

    def __init__(self, transport: Transport, host: Host) -> None:
        self._transport, self._host = transport, host
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        self._sent_shell = self._closed = False

    async def __aenter__(self) -> Self:
        self.channel = await self._transport.open(self._host)
        try:
            self.hello = (await self.until("H")).payload
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        if not self._closed:
            await self.close()

    async def close(self, grace: float = 1.0) -> None:
        """Close the channel."""
        self._closed = True
        await self.channel.close(grace)

    async def until(self, kind: str) -> Frame:
        """The next frame of that kind; others are skipped."""
        while True:
            while self._frames:
                if (frame := self._frames.pop(0)).kind == kind:
                    return frame
            data = await self.channel.read()
            assert data, f"the channel ended before a frame of kind {kind}"
            self._frames = self._decoder.feed(data)
            if self._decoder.needs_shell and not self._sent_shell:
                self._sent_shell = True
                await self.channel.write(stand_in())


def _text(text: str) -> str:
    return text
