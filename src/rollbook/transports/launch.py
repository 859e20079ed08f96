"""One run of a launcher: its process, the port that its agents connect to, and a channel for each host.

Agents whose claims contradict each other or the network are refused, and all hosts concerned fail with that reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Sequence

from rollbook import agent
from rollbook.errors import AgentFailed
from rollbook.hosts import Host
from rollbook.transports.claims import AddressBook, Claim, match_host
from rollbook.transports.launcher_output import message_about
from rollbook.transports.listener import ADDRESSES, Connection, Listener
from rollbook.transports.pipe import Ending, Pipe
from rollbook.transports.shared_output import SharedOutput

__all__ = ["AgentChannel", "Launch"]

READ_SIZE = 256 * 1024
LAST_OUTPUT = 0.5  # seconds that output of a dead launcher may still be on its way
LAST_MESSAGE = 1.0  # seconds for a launcher to report what happened to an agent
TOGETHER = 3.0  # seconds within which agents end with their launcher
MAX_WAITING = 64 << 20  # bytes of an agent's lines that wait to be read, while other hosts have their turn


class AgentChannel:
    """The channel to one agent, either its own connection or its lines on the launcher's stdout.

    Without a `writer` orders cannot be sent: the agent follows those it was started with.
    """

    def __init__(self, launch: Launch, host: Host, claim: Claim, connection: Connection | None = None) -> None:
        self.host, self.claim, self._connection = host, claim, connection
        self.reader = connection.reader if connection else asyncio.StreamReader()
        self.writer = connection.writer if connection else None
        self.opened = False
        self.closed = False
        self.failure = ""  # what the launcher reported about the agent's end
        self.closed_at: float | None = None  # by the monotonic clock
        self._launch = launch
        self._reading = asyncio.Lock()
        self._stop_sent = self._failed = False
        self._waiting = 0  # bytes of lines that were not read yet

    @property
    def is_over(self) -> bool:
        """Whether nothing more can arrive from the agent."""
        return self.closed or self.reader.at_eof()

    def feed(self, lines: bytes) -> None:
        """Take lines from the launcher's stdout; those that arrive after the end or a failure are discarded."""
        if self.closed or self._failed or self._launch.ended.is_set():
            return
        self._waiting += len(lines)
        if self._waiting > MAX_WAITING:
            self.fail(f"disconnected: the host sends more than {MAX_WAITING >> 20} MiB before its lines can be read")
        else:
            self.reader.feed_data(lines)

    def fail(self, reason: str) -> None:
        """End the channel: reads raise `AgentFailed` with the reason."""
        self._failed = True
        self.reader.set_exception(AgentFailed(reason))
        if self.writer is not None:
            self.writer.transport.abort()

    async def read(self) -> bytes:
        """The next bytes; empty when either side has closed.

        Raises `AgentFailed` if something on the way changed or inserted bytes, or after `fail`.
        """
        async with self._reading:  # a stream has one reader at a time, and `close` reads as well
            data = b""
            while not data:
                try:
                    piece = await self.reader.read(READ_SIZE)
                except OSError:
                    return b""
                self._waiting -= len(piece)
                if self._connection is None or not piece:
                    return piece
                try:
                    data = self._connection.receive.open(piece)
                except ConnectionError as error:
                    self.fail(f"the connection of the agent was tampered with: {error}")
            return data

    async def write(self, data: bytes) -> None:
        """Send orders; they are discarded if the agent has ended."""
        self._stop_sent |= data.endswith(b"stop\n")
        if self.writer is None:
            self._launch.signal_agents(data)
        elif not self.closed:
            with contextlib.suppress(OSError):
                assert self._connection is not None
                self.writer.write(self._connection.send.seal(data))
                await self.writer.drain()

    async def close(self, grace: float = 0.0) -> Ending:
        """Close the connection, which ends the agent; the launcher ends with the last of its agents."""
        self.closed_at = self.closed_at or time.monotonic()
        if not self.closed and self.writer is not None:
            with contextlib.suppress(OSError, TimeoutError, AgentFailed):
                if self.writer.can_write_eof() and grace:
                    self.writer.write_eof()
                    async with asyncio.timeout(grace):
                        while await self.read():
                            pass
            self.writer.transport.abort()
        self.closed = True
        self.reader.feed_eof()
        self.failure = "" if self._stop_sent else await self._launch.explain_end(self.host, self.claim)
        return Ending(self._launch.code or 0, self.failure)


class Launch:
    """Starts the launcher for all hosts and assigns each agent that arrives to its host.

    Agents may arrive until `ended` is set; then the launcher is gone, and hosts without an agent stay without one.
    Agents with their own connection may outlive their launcher.
    """

    def __init__(
        self, program: str, hosts: Sequence[Host], script: bytes, label: re.Pattern[bytes] | None = None
    ) -> None:
        self.program, self.hosts, self.script = program, list(hosts), script
        self.channels: dict[str, asyncio.Future[AgentChannel | None]] = {}
        self.token = secrets.token_hex(32)
        self.ended = asyncio.Event()
        self.reported_missing: set[str] = set()  # hosts whose callers know that no agent arrives
        self.still_due: set[str] = set()  # hosts whose callers wait for the first time
        self.late: set[str] = set()  # hosts whose callers have waited in vain
        self.dismissed = False  # closed by us, without another launch to follow
        self._ended_at: float | None = None
        self.conflicts: dict[str, str] = {}  # hosts that agents make conflicting claims about, and the reason
        self._addresses = AddressBook(self.hosts, self._check_addresses)
        self._by_rank: dict[int, AgentChannel] = {}
        self._false_ranks: dict[int, str] = {}  # ranks whose output has frames of another rank, and the reason
        self._by_address: dict[str, list[AgentChannel]] = {}
        self._listener = Listener(self.token, self._connected, ADDRESSES * len(self.hosts))
        self._stdout, self._stderr = (SharedOutput(self.token, self._announced, label) for _ in range(2))
        self._pipe: Pipe | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._signalled = False

    async def start(self, argv: Callable[[int], list[str]], connect_back: str | None = None) -> None:
        """Listen, then start the program; `argv` makes its command line from the port.

        `connect_back` is the address to listen on, or `none` to listen on none.
        """
        loop = asyncio.get_running_loop()
        self.channels = {host.name: loop.create_future() for host in self.hosts}
        if connect_back != "none":
            self._addresses.resolve()
            await self._listener.open(connect_back)
        try:
            # Only the same user can read the environment of a process; every user can read its command line.
            environ = {**os.environ, agent.TOKEN: self.token}
            program = argv(self._listener.port)
            self._pipe = Pipe(program, environ, end_with_parent=True, large_buffers=True, on_stderr=self._stderr.feed)
        except AgentFailed:
            self._listener.close()
            raise
        self._tasks = [asyncio.create_task(self._read(self._pipe)), asyncio.create_task(self._watch(self._pipe))]

    @property
    def code(self) -> int | None:
        """The launcher's exit code, None while it runs."""
        return self._pipe.code if self._pipe else None

    @property
    def output(self) -> str:
        """What the launcher printed beside its agents' lines."""
        return self._stderr.other + self._stdout.other

    @property
    def arrived(self) -> list[AgentChannel]:
        """The agents that arrived, including those that have ended."""
        done = [future.result() for future in self.channels.values() if future.done()]
        return [channel for channel in done if channel is not None]

    @property
    def all_over(self) -> bool:
        """Whether at least one agent arrived and all that did have ended."""
        return bool(self.arrived) and all(channel.is_over for channel in self.arrived)

    def is_over_for(self, host: Host) -> bool:
        """Whether nothing more can arrive: all agents have ended, or none arrived and the host's caller knows.

        An agent that ends early does not end those that are about to arrive.
        """
        return (self.all_over and not self.still_due) or (not self.arrived and host.name in self.reported_missing)

    def closed_early(self) -> list[AgentChannel]:
        """The agents that ended while the launcher still ran; the same fault may have ended the launcher."""
        if self._ended_at is None:
            return []
        limit = self._ended_at - TOGETHER
        return [channel for channel in self.arrived if channel.closed_at is not None and channel.closed_at < limit]

    def signal_agents(self, order: bytes) -> None:
        """Pass on an order to agents that cannot be sent any: those with a `wait` in their script take a signal."""
        ending = order.startswith((b"go\tend", b"stop"))
        if ending and b"\nwait\n" in self.script and self._pipe is not None and not self._signalled:
            self._signalled = True
            self._pipe.signal(signal.SIGUSR1)

    async def explain_end(self, host: Host, claim: Claim) -> str:
        """What the launcher printed about an agent that ended; it may need a moment."""
        for _ in range(round(LAST_MESSAGE / 0.05)):
            if self.ended.is_set() or message_about(self.output, host.name, claim.rank):
                break
            await asyncio.sleep(0.05)
        ended = f"{self.program} ended with code {self.code}" if self.code else ""
        return message_about(self.output, host.name, claim.rank) or ended

    async def close(self) -> None:
        """End agents and launcher, in this order."""
        self._listener.close()
        needs_signal = False
        for channel in self.arrived:
            needs_signal |= channel.writer is None and not channel.is_over
            if channel.writer is not None:
                channel.writer.transport.abort()  # even if the agent closed its side: that only half-closes it
            channel.closed = True
        if self._pipe is not None:
            # Agents end with their connections and the launcher after them; those without need its help.
            await self._pipe.close(grace=0.0 if needs_signal or not self.all_over else 5.0)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._finish()

    def _finish(self) -> None:
        self._ended_at = self._ended_at or time.monotonic()
        self.ended.set()
        self._listener.close()
        for future in self.channels.values():
            if not future.done():
                future.set_result(None)
            elif (channel := future.result()) is not None and channel.writer is None:
                channel.reader.feed_eof()

    async def _read(self, pipe: Pipe) -> None:
        while data := await pipe.read():
            self._stdout.feed(data)
            await asyncio.sleep(0)  # output that never ends would let nothing else run

    async def _watch(self, pipe: Pipe) -> None:
        await pipe.wait()
        await asyncio.wait([self._tasks[0]], timeout=LAST_OUTPUT)
        self._finish()

    def _connected(self, connection: Connection) -> None:
        if self._assign(connection.claim, connection) is None:
            connection.writer.transport.abort()
        elif all(future.done() for future in self.channels.values()):
            self._listener.close()

    def _announced(self, claim: Claim) -> Callable[[bytes], None]:
        channel = self._assign(claim)
        return channel.feed if channel else lambda _: None

    def _assign(self, claim: Claim, connection: Connection | None = None) -> AgentChannel | None:
        """Make the channel of an agent; None if it belongs to no host, if the host has one, or if claims conflict."""
        if claim.rank is not None and claim.attested not in (None, claim.rank):
            self._report_false_rank(claim)
            return None
        free = {name for name, future in self.channels.items() if not future.done()}
        host = match_host(claim, self.hosts, free)
        if host is None:
            self._check_second(claim)
            return None
        channel = AgentChannel(self, host, claim, connection)
        if claim.rank is not None and (other := self._by_rank.setdefault(claim.rank, channel)) is not channel:
            self._conflict({host.name, other.host.name}, f"two agents claim rank {claim.rank}")
            return None
        if claim.rank in self._false_ranks:
            self._conflict({host.name}, self._false_ranks[claim.rank])
            return None
        if self._is_contradicted(channel):
            return None
        self._by_address.setdefault(claim.address, []).append(channel)
        self.channels[host.name].set_result(channel)
        return channel

    def _report_false_rank(self, claim: Claim) -> None:
        """An agent claims another rank than that of the process whose output it wrote to."""
        assert claim.attested is not None
        claimed, writer = match_host(claim, self.hosts, self.channels), self._by_rank.get(claim.attested)
        reason = f"frames of rank {claim.rank} came from the process of rank {claim.attested}"
        self._false_ranks[claim.attested] = reason
        self._conflict({*([claimed.name] if claimed else []), *([writer.host.name] if writer else [])}, reason)

    def _check_second(self, claim: Claim) -> None:
        """An agent claims a host that has one already: a conflict, unless the same agent tries again."""
        host = match_host(claim, self.hosts, self.channels)
        first = self.channels[host.name].result() if host else None
        if first and claim.instance != first.claim.instance:
            addresses = [one.address for one in (first.claim, claim) if one.address]
            owners = {owner for address in addresses for owner in self._addresses.owners(address)}
            where = f", at {' and at '.join(addresses)}" if addresses else ""
            self._conflict({first.host.name, *owners}, f"two agents claim to be {first.host.name}{where}")

    def _check_addresses(self, name: str, addresses: frozenset[str]) -> None:
        """Check the agents that arrived before the addresses of this host were found."""
        future = self.channels[name]
        own = [future.result()] if future.done() and not future.cancelled() else []
        for channel in [*own, *(channel for address in addresses for channel in self._by_address.get(address, []))]:
            if channel is not None:
                self._is_contradicted(channel)

    def _is_contradicted(self, channel: AgentChannel) -> bool:
        """Whether an agent claims one host from the address of another, which is then recorded for both."""
        name, address = channel.host.name, channel.claim.address
        other = self._addresses.contradicting(name, address)
        if other is not None:
            self._conflict({name, other}, f"an agent at {address}, an address of {other}, claims to be {name}")
        return other is not None

    def _conflict(self, names: Iterable[str], reason: str) -> None:
        """Fail these hosts: which of the agents is the right one cannot be known."""
        for name in names:
            future = self.channels[name]
            if name not in self.conflicts:
                self.conflicts[name] = f"conflicting claims: {reason}"
                if not future.done():
                    future.set_result(None)
                elif (channel := future.result()) is not None:
                    channel.fail(self.conflicts[name])
