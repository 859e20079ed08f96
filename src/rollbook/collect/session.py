"""The session with one agent, from its first byte to its end frame: orders out, frames in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Self

from rollbook import agent
from rollbook.collect.budget import Budget, Meter
from rollbook.errors import AgentFailed, ProtocolError, RollbookError
from rollbook.hosts import Host
from rollbook.protocol.beats import Schedule
from rollbook.protocol.frames import Decoder, Frame
from rollbook.protocol.plan import LARGEST, Plan
from rollbook.protocol.readings import read_frame
from rollbook.protocol.visit import PHASES, Phase, Visit, parse_fields
from rollbook.records.hosts import Clock
from rollbook.transports.base import Channel, Transport, last_line
from rollbook.transports.pipe import Ending

__all__ = ["SILENCE", "Listener", "Session"]

Listener = Callable[[int, Frame], None]

SILENCE = 30.0  # seconds; an agent sends a frame every 5 s, the stand-in when pinged; a silent one is lost
SLICE = 1 << 16  # bytes of one host that are processed before the event loop serves the others
KEY_PAUSE = 1.0  # seconds between two requests for a key frame
FINISHED = frozenset((*(phase.encode() for phase in PHASES), b"items", b"put", b"sent"))


class Session:
    """Owns the channel to one agent. Use as `async with Session(...)`; the channel is closed on every exit.

    `visit` is updated as frames arrive, so that everything before a failure is kept. `listener` gets every frame with
    its arrival time, before the frame is interpreted. `heard_at` is the time of the last frame. `command_end` is how a
    command ended, empty before. The session ends with an `AgentFailed` when the host exceeds the budget of `meter`.
    """

    def __init__(
        self,
        host: Host,
        transport: Transport,
        plan: Plan,
        listener: Listener | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.host, self.transport, self.plan = host, transport, plan
        self.visit = Visit(host, plan, transport.name)
        self.decoder = Decoder()
        self.heard_at = time.monotonic()
        self.command_end: dict[str, str] = {}
        self._listener, self._meter = listener, meter or Meter(Budget.of(plan, 0))
        self._channel: Channel | None = None
        self._pump: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._phases: set[bytes] = set()
        self._ping = b""
        self._pong: tuple[int, int] | None = None
        self._pings = 0
        self._sent_shell = False
        self._sampling = self._needs_key = False
        self._lost, self._key_requested = 0, 0.0
        self._closing = asyncio.Lock()
        self._ending: Ending | None = None

    async def __aenter__(self) -> Self:
        self._channel = await self.transport.open(self.host)
        self._pump = asyncio.create_task(self._receive(self._channel))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._close(grace=0.0)

    @property
    def takes_orders(self) -> bool:
        """Whether the agent has a return channel; one without got all its orders when it was started."""
        return self.visit.hello.get("orders") != "argv"

    async def greet(self) -> None:
        """Send the plan and wait for the agent's hello."""
        await self._send(self.plan.orders())
        await self._until(lambda: bool(self.visit.hello))

    async def read_all(self, phase: Phase) -> None:
        """Read every source of the plan once; the readings are added to the visit."""
        await self._send(b"go\t%s\n" % phase.encode())
        await self._until(lambda: phase.encode() in self._phases)

    async def read_items(self, orders: bytes, phase: bytes = b"items") -> None:
        """Send orders of an issue report and wait until the agent has done them; the listener gets their frames.

        `phase` is what the agent reports: `items` are read, their archive is `put` into S3, or it is `sent`.
        Raises `AgentFailed` for a host that only has the shell stand-in, which cannot read items.
        """
        if self.visit.hello.get("kind") == "sh":
            raise AgentFailed("the host has no Python 3.6 or later, which reading the items of a report needs")
        if self.takes_orders:  # otherwise it got all orders at its start, and may have done these
            self._phases.discard(phase)
        await self._send(orders)
        await self._until(lambda: phase in self._phases)

    async def measure_clock(self, count: int) -> Clock | None:
        """The offset of the host's clock, from the shortest of `count` round trips.

        None if the agent has no return channel.
        """
        best: Clock | None = None
        if not self.takes_orders:
            return None
        for _ in range(count):
            self._pings += 1
            self._ping, self._pong = b"%d" % self._pings, None
            sent = time.time_ns()
            await self._send(b"ping\t%s\n" % self._ping)
            arrived, wall = await self._await_pong()
            trip = arrived - sent
            # Below zero our clock was set back meanwhile.
            if trip >= 0 and (best is None or trip < best.round_trip_ns):
                best = self.visit.clock = Clock((sent + arrived) // 2 - wall, trip // 2 + 1, trip)
        return best

    async def _await_pong(self) -> tuple[int, int]:
        """The arrival time of the expected pong, and the host's clock in it."""
        await self._until(lambda: self._pong is not None)
        assert self._pong is not None
        return self._pong

    async def sample(self, schedule: Schedule) -> None:
        """Start sampling on every beat, of our clock if `correct` has sent the host's offset."""
        await self._send(schedule.order)
        self._sampling, self._lost = True, self.decoder.lost

    async def correct(self, clock: Clock) -> None:
        """Send the agent the offset of its clock, so that its beats stay on ours."""
        await self._send(b"clock\t%d\n" % clock.offset_ns)

    async def mark(self, name: str) -> None:
        """Take an extra sample now."""
        self._meter.mark()
        await self._send(f"mark\t{name}\n".encode())

    async def execute(self, order: bytes) -> None:
        """Run a command and wait for its end; its output goes to the listener."""
        await self._send(order)
        await self._until(lambda: bool(self.command_end))

    async def wait_for_loss(self) -> None:
        """Wait until the session fails; raises the reason."""
        await self._until(lambda: False)

    async def stop(self) -> None:
        """Stop the agent and wait for its end frame."""
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
        """Wait for frames until `ready()`; raises the reason if the session ends first."""
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
        if isinstance(error, RollbookError):  # raised here, for example for too much noise
            raise error
        if error is not None:
            raise AgentFailed(f"error in the collector while processing data from the host: {error!r}") from error
        await self._close(grace=2.0)
        assert self._ending is not None
        if not self.visit.hello:
            raise self.transport.explain(self.host, self._ending, self.decoder.head)
        message = last_line(self._ending.stderr)
        read, planned = len(self.visit.readings), len(self.plan.sources)
        what = f"the agent ended early, after {read} of {planned} sources" if read < planned else "the agent is gone"
        raise AgentFailed(f"{what}: {message}" if message else f"{what} (killed, or the connection broke)")

    async def _receive(self, channel: Channel) -> None:
        try:
            while data := await channel.read():
                for start in range(0, len(data), SLICE):
                    piece = data[start : start + SLICE]
                    self._meter.receive(len(piece))
                    for frame in self.decoder.feed(piece):
                        self._take(frame)
                    await self._check_noise()
                    await self._check_loss()
                    self._changed.set()
                    await asyncio.sleep(0)  # a channel that always has data would never let other hosts run
            for frame in self.decoder.feed(b"", end=True):
                self._take(frame)
        finally:
            self._changed.set()

    async def _check_noise(self) -> None:
        if self.decoder.needs_shell and not self._sent_shell:
            self._sent_shell = True
            await self._send(agent.stand_in() + self.plan.orders())
        if self.decoder.is_mostly_noise:
            raise AgentFailed(
                f"the host sends {'garbage' if self.visit.hello else 'garbage instead of a greeting'}; "
                "check what its login files print in sessions without a terminal"
            )

    async def _check_loss(self) -> None:
        """Request a key frame after a lost frame: the samples that follow cannot be decoded without it."""
        if not self._sampling or self.visit.hello.get("kind") == "sh" or not self.takes_orders:
            return
        self._needs_key |= self.decoder.lost > self._lost
        self._lost = self.decoder.lost
        if self._needs_key and time.monotonic() - self._key_requested > KEY_PAUSE:
            self._needs_key, self._key_requested = False, time.monotonic()
            self._meter.mark()
            await self._send(b"key\n")

    def _take(self, frame: Frame) -> None:
        arrived, self.heard_at = time.time_ns(), time.monotonic()
        self._meter.frame(frame)
        if self._listener:
            self._listener(arrived, frame)
        try:
            if frame.kind == "H" and not self.visit.hello:
                self.visit.hello = parse_fields(frame.payload)
            elif frame.kind == "E":
                self.visit.goodbye = parse_fields(frame.payload) or {"sent": ""}
            elif frame.kind == "X":
                self.command_end = parse_fields(frame.payload) or {"status": ""}
            elif frame.kind == "P" and frame.payload == self._ping and self._pong is None:
                self._pong = arrived, frame.wall
            elif frame.kind == "D" and frame.payload in FINISHED:
                self._phases.add(frame.payload)
            elif frame.kind in "RZ":
                self._read(frame)
        except ProtocolError:
            self.decoder.damaged += 1
            self.decoder.wasted += LARGEST if frame.kind == "Z" else 0

    def _read(self, frame: Frame) -> None:
        reading = read_frame(frame, self.plan)
        self._meter.inflate(len(reading.raw))
        if not self.visit.keep(reading):
            # It was not requested, and inflating it may have cost much time for a few bytes.
            self.decoder.wasted += max(0, len(reading.raw) - len(frame.payload))
