"""Scripted hosts without processes: a transport that plays the agents itself and sends real frames.

    fake = Fake({
        "node1": FakeHost(pages=linux("node1", memory_kib=1 << 20)),
        "node2": FakeHost(fails=Refused("key rejected")),
        "node3": FakeHost(pages=pages_of(Path("recorded/node3")), dies_after=7),
    })
    records = await gather([Host(name) for name in fake.hosts], lambda host: fake, plan)

A thousand of them cost little more than decoding and parsing what they send.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import zlib
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from rollbook.agent import NEED_SHELL
from rollbook.agent.loop import QUIET
from rollbook.agent.wire import VERSION, binary, lines_of, text
from rollbook.errors import AgentFailed, TransportError, Unreachable
from rollbook.hosts import Host
from rollbook.sources.base import most_beats
from rollbook.testing.fakehost import FakeHost
from rollbook.testing.journals import Beats
from rollbook.transports.base import Ending

__all__ = ["Fake"]

LONGEST = 1 << 20  # bytes of one order; the shell stand-in is sent as one
_pids = itertools.count(1000)


class Fake:
    """The transport to scripted hosts; a host that is not in the script does not resolve.

    `opened` counts the channels to each host, `living` the agents that have not ended.
    """

    name = "fake"

    def __init__(self, hosts: Mapping[str, FakeHost]) -> None:
        self.hosts = hosts
        self.opened = Counter[str]()
        self.living: set[FakeChannel] = set()

    async def open(self, host: Host) -> FakeChannel:
        """Start the agent of a scripted host."""
        self.opened[host.name] += 1
        script = self.hosts.get(host.name) or FakeHost(fails=Unreachable("the name does not resolve"))
        failing = script.fails is not None and self.opened[host.name] <= (script.failures or self.opened[host.name])
        channel = FakeChannel(host.name, script, script.fails if failing else None)
        self.living.add(channel)
        channel.task.add_done_callback(lambda _: self.living.discard(channel))
        return channel

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """The failure in the script, else the output that was received."""
        script = self.hosts.get(host.name)
        if script is None:
            return Unreachable("the name does not resolve")
        output = ending.stderr or heard[-200:].decode("utf-8", "replace").strip() or "no output"
        return script.fails or AgentFailed(f"the agent did not start (exit code {ending.code}): {output}")


class FakeChannel:
    """The channel to one scripted agent, and the agent: a task that takes orders and sends frames."""

    def __init__(self, name: str, script: FakeHost, failure: TransportError | None) -> None:
        self._name, self._script, self._failure = name, script, failure
        self._orders, self._answers = asyncio.StreamReader(LONGEST), asyncio.StreamReader(LONGEST)
        self._began = time.monotonic()
        self._plan: list[_Planned] = []
        self._work: list[asyncio.Task[None]] = []
        self._sent = Counter[str]()
        self._samples = Beats()
        self._readings = self._beats = self._offset = 0
        self.task = asyncio.create_task(self._live())

    async def read(self) -> bytes:
        """The next bytes; empty when the agent has ended."""
        return await self._answers.read(1 << 18)

    async def write(self, data: bytes) -> None:
        """Send orders; an agent that has ended ignores them."""
        if not self.task.done() and not self._orders.at_eof():
            self._orders.feed_data(data)

    async def close(self, grace: float = 0.0) -> Ending:
        """End the orders; an agent that still runs after `grace` seconds is cancelled."""
        self._orders.feed_eof()
        await asyncio.wait([self.task], timeout=grace)
        self.task.cancel()
        await asyncio.wait([self.task])
        if self._failure:
            return Ending(255, str(self._failure))
        return Ending(-15 if self.task.cancelled() else 0, "")

    async def _live(self) -> None:
        try:
            await asyncio.sleep(self._script.delay)
            if self._failure is None:
                await self._play()
        finally:
            for task in self._work:
                task.cancel()
            self._answers.feed_eof()

    async def _play(self) -> None:
        self._answers.feed_data(self._script.noise)
        while self._script.garbage:
            self._answers.feed_data(b"\xff\x00garbage\n" * 1024)
            await asyncio.sleep(0.001)
        if self._script.silent:
            await asyncio.Event().wait()
        if self._script.python is None:
            self._answers.feed_data(NEED_SHELL + b"\n")
            try:
                await self._orders.readuntil(b"#end\n")
            except asyncio.IncompleteReadError:
                return
        self._hello()
        self._answers.feed_data(self._script.says)
        if self._script.python is not None:  # the stand-in sends no heartbeats
            self._begin(self._beat_when_quiet())
        while line := await self._orders.readline():
            self._obey(line.decode().rstrip("\n").split("\t"))
            if line == b"stop\n":
                return

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task beside the order loop; an error in the script ends the agent and is reported."""
        task = asyncio.create_task(work)
        task.add_done_callback(self._ended)
        self._work.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            self._failure = AgentFailed(f"the script of {self._name} failed: {error!r}")
            self.task.cancel()

    def _obey(self, order: Sequence[str]) -> None:
        word, *rest = order
        if word == "source":
            number, every, limit, _ = map(int, rest)
            self._plan.append(_Planned(number, every, limit))
        elif word in ("read", "link", "run", "each", "space", "env", "loop"):
            self._plan[-1].asks.append(order)
        elif word == "go":
            self._begin(self._go(rest[0]))
        elif word == "ping":
            self._say("P", rest[0].encode())
        elif word == "sample":
            self._begin(self._sample(*map(int, rest)))
        elif word == "clock":
            self._offset = int(rest[0])
        elif word == "mark":
            self._take(everything=True)
        elif word == "key":
            self._take(everything=True, key=True)
        elif word == "stop":
            self._say("E", lines_of([("cpu", "0.0"), ("sent", sum(self._sent.values())), ("samples", self._beats)]))

    def _hello(self) -> None:
        script = self._script
        facts: list[tuple[str, object]] = [
            ("agent", VERSION),
            ("kind", "sh" if script.python is None else "python"),
            ("python", script.python or ""),
            ("pid", next(_pids)),
            ("uid", 0),
            ("hostname", script.hostname or self._name),
            ("machine_id", script.text("/etc/machine-id").strip()),
            ("boot_id", script.text("/proc/sys/kernel/random/boot_id").strip()),
        ]
        self._say("H", lines_of(facts))

    async def _beat_when_quiet(self) -> None:
        while True:
            await asyncio.sleep(QUIET)
            self._say("B")

    async def _go(self, phase: str) -> None:
        for source in self._plan:
            if self._readings == self._script.dies_after:
                self.task.cancel()
                return
            if self._script.pace:
                await asyncio.sleep(self._script.pace)
            self._read(source, phase)
        self._say("D", phase.encode())

    def _read(self, source: _Planned, phase: str, tag: str = "") -> None:
        body = source.body(self._script, self._clocks()[0] / 1e9)
        payload = f"{source.number} {phase} - 0 \n".encode() + body
        small = zlib.compress(payload)
        if len(small) < len(payload) and self._script.python:
            self._say("Z", small)
        else:
            self._say("R", payload, tag)
        self._readings += 1

    async def _sample(self, interval: int, *doubles: int) -> None:
        """Sample at multiples of the interval, on the collector's clock as far as its offset is known."""
        left = list(doubles)
        while True:
            wall = self._clocks()[1] + self._offset
            while left and wall >= left[0]:
                interval, _ = 2 * interval, left.pop(0)
            for source in self._plan:
                source.every = min(source.every, most_beats(interval / 1e9))
            await asyncio.sleep((interval - wall % interval) / 1e9)
            self._take()

    def _take(self, *, everything: bool = False, key: bool = False) -> None:
        sampled = [source for source in self._plan if source.every]
        due = [source for source in sampled if everything or self._beats % source.every == 0]
        if self._script.python is None:
            for source in due:
                self._read(source, "sample", "b")
        else:
            seconds = self._clocks()[0] / 1e9
            bodies = {source.number: source.body(self._script, seconds) for source in due}
            self._say("S", self._samples.payload(bodies, key=key))
        self._beats += 1

    def _clocks(self) -> tuple[int, int]:
        """Nanoseconds since the agent began, and of the host's wall clock."""
        mono = time.monotonic() - self._began
        return int(mono * 1e9), time.time_ns() + int(self._script.ahead * 1e9)

    def _say(self, kind: str, payload: bytes = b"", tag: str = "") -> None:
        if self._script.python is None:
            tag = tag or "s"
        carry = text(tag) if tag else binary
        self._answers.feed_data(carry(kind.encode(), self._sent[tag], *self._clocks(), payload))
        self._sent[tag] += 1


class _Planned:
    """One source of the plan."""

    def __init__(self, number: int, every: int, limit: int) -> None:
        self.number, self.every, self.limit = number, every, limit
        self.asks: list[Sequence[str]] = []

    def body(self, script: FakeHost, seconds: float) -> bytes:
        """All pages of the source; its limit is for all of them together."""
        pieces: list[bytes] = []
        for ask in self.asks:
            used = sum(len(piece) - piece.index(b"\n") - 1 for piece in pieces)  # names are not counted
            pieces += script.answer(ask, self.limit - used, seconds)
        return b"".join(pieces)
