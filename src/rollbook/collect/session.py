"""One agent on one host, from its first byte to its goodbye: orders out, frames in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self

from rollbook import agent
from rollbook.errors import AgentFailed, ProtocolError, RollbookError
from rollbook.hosts import Host
from rollbook.protocol.frames import Decoder, Frame
from rollbook.protocol.plan import LARGEST, Plan
from rollbook.protocol.readings import read_frame
from rollbook.protocol.visit import PHASES, Phase, Visit, said
from rollbook.records.hosts import Clock
from rollbook.transports.base import Channel, Transport, last_line
from rollbook.transports.pipe import Ending

__all__ = ["Listener", "Session"]

Listener = Callable[[int, Frame], None]

FINISHED = frozenset(phase.encode() for phase in PHASES)


class Session:
    """Owns the channel to one agent. Use as `async with Session(...)`; whatever happens, the channel is closed.

    `visit` grows as frames arrive, so that what came before a failure is kept. `listener` is given every frame with
    the time of its arrival, before anything is made of it.
    """

    def __init__(self, host: Host, transport: Transport, plan: Plan, listener: Listener | None = None) -> None:
        self.host, self.transport, self.plan = host, transport, plan
        self.visit = Visit(host, plan, transport.name)
        self.decoder = Decoder()
        self.heard = time.monotonic()
        self._listener = listener
        self._channel: Channel | None = None
        self._pump: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._phases: set[bytes] = set()
        self._ping = b""
        self._pong: tuple[int, int] | None = None
        self._pings = 0
        self._sent_shell = False
        self._closing = asyncio.Lock()
        self._ending: Ending | None = None

    async def __aenter__(self) -> Self:
        self._channel = await self.transport.open(self.host)
        self._pump = asyncio.create_task(self._receive(self._channel))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._close(grace=0.0)

    async def greet(self) -> None:
        """Send the plan and wait for the agent's hello."""
        await self._send(self.plan.orders())
        await self._until(lambda: bool(self.visit.hello))

    async def read_all(self, phase: Phase) -> None:
        """Have every source of the plan read once; the readings are in the visit."""
        await self._send(b"go\t%s\n" % phase.encode())
        await self._until(lambda: phase.encode() in self._phases)

    async def measure_clock(self, count: int) -> Clock | None:
        """The host's clock against ours: the round trip that took least time bounds the error best.

        None where the agent cannot be asked because its orders came with it.
        """
        best: Clock | None = None
        if self.visit.hello.get("orders") == "argv":
            return None
        for _ in range(count):
            self._pings += 1
            self._ping, self._pong = b"%d" % self._pings, None
            sent = time.time_ns()
            await self._send(b"ping\t%s\n" % self._ping)
            arrived, wall = await self._answer()
            trip = arrived - sent
            if best is None or trip < best.round_trip_ns:
                best = self.visit.clock = Clock((sent + arrived) // 2 - wall, trip // 2 + 1, trip)
        return best

    async def _answer(self) -> tuple[int, int]:
        """When the pong that is waited for arrived, and the host's clock in it."""
        await self._until(lambda: self._pong is not None)
        assert self._pong is not None
        return self._pong

    async def sample(self, interval_ns: int) -> None:
        """Have the sampled sources read on every beat from now on, on our clock as far as it is known."""
        if self.visit.clock is not None:
            await self._send(b"clock\t%d\n" % self.visit.clock.offset_ns)
        await self._send(b"sample\t%d\n" % interval_ns)

    async def correct(self, clock: Clock) -> None:
        """Tell the agent how its clock stands, so that its beats stay on ours."""
        await self._send(b"clock\t%d\n" % clock.offset_ns)

    async def mark(self, name: str) -> None:
        """Have an extra sample taken now."""
        await self._send(f"mark\t{name}\n".encode())

    async def lasting(self) -> None:
        """Return only by raising why the agent is gone."""
        await self._until(lambda: False)

    async def stop(self) -> None:
        """Let the agent say goodbye and leave."""
        await self._send(b"stop\n")
        await self._until(lambda: bool(self.visit.goodbye))
        await self._close(grace=1.0)

    async def _close(self, grace: float) -> None:
        async with self._closing:
            if self._channel is not None and self._ending is None:
                self._ending = await self._channel.close(grace)
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])

    async def _send(self, data: bytes) -> None:
        assert self._channel is not None
        await self._channel.write(data)

    async def _until(self, ready: Callable[[], bool]) -> None:
        """Wait for frames to bring something; raises what ended the stream if they cannot any more."""
        assert self._pump is not None
        while not ready():
            if self._pump.done():
                await self._fail()
            self._changed.clear()
            await self._changed.wait()

    async def _fail(self) -> None:
        assert self._pump is not None
        if self._pump.cancelled():
            raise AgentFailed("the session was closed")
        error = self._pump.exception()
        if isinstance(error, RollbookError):  # of our own making, such as too much noise
            raise error
        if error is not None:
            raise AgentFailed(f"what the host sent could not be dealt with: {error!r}") from error
        await self._close(grace=2.0)
        assert self._ending is not None
        if not self.visit.hello:
            raise self.transport.explain(self.host, self._ending, self.decoder.head)
        words = last_line(self._ending.stderr)
        read, asked = len(self.visit.readings), len(self.plan.sources)
        halfway = f"the agent ended halfway, after {read} of {asked} sources" if read < asked else "the agent is gone"
        raise AgentFailed(f"{halfway}: {words}" if words else f"{halfway} (killed, or the connection broke)")

    async def _receive(self, channel: Channel) -> None:
        try:
            while data := await channel.read():
                for frame in self.decoder.feed(data):
                    self._take(frame)
                await self._listen_to_noise()
                self._changed.set()
            for frame in self.decoder.feed(b"", end=True):
                self._take(frame)
        finally:
            self._changed.set()

    async def _listen_to_noise(self) -> None:
        if self.decoder.needs_shell and not self._sent_shell:
            self._sent_shell = True
            await self._send(agent.stand_in() + self.plan.orders())
        if self.decoder.hopeless:
            raise AgentFailed(
                f"the host sends {'garbage' if self.visit.hello else 'garbage instead of a greeting'}; "
                "look at what its login files print for sessions without a terminal"
            )

    def _take(self, frame: Frame) -> None:
        arrived, self.heard = time.time_ns(), time.monotonic()
        if self._listener:
            self._listener(arrived, frame)
        try:
            if frame.kind == "H" and not self.visit.hello:
                self.visit.hello = said(frame.payload)
            elif frame.kind == "E":
                self.visit.goodbye = said(frame.payload) or {"sent": ""}
            elif frame.kind == "P":
                if frame.payload == self._ping and self._pong is None:
                    self._pong = arrived, frame.wall
            elif frame.kind == "D":
                if frame.payload in FINISHED:
                    self._phases.add(frame.payload)
            elif frame.kind in "RZ":
                self._read(frame)
        except ProtocolError:
            self.decoder.damaged += 1
            self.decoder.wasted += LARGEST if frame.kind == "Z" else 0

    def _read(self, frame: Frame) -> None:
        reading = read_frame(frame, self.plan)
        if not self.visit.keep(reading):
            # Nobody asked for it, and to inflate it may have been much work for a few bytes.
            self.decoder.wasted += max(0, len(reading.raw) - len(frame.payload))
