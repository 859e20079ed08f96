"""Transports whose agents are all started by one program, such as srun or mpirun.

The first `open` starts the launcher for all expected hosts; each `open` waits for its host's agent. Agents connect back
over TCP. Where the network forbids that, they write lines to the launcher's stdout and follow the script they were
started with. If a host's agent does not arrive, the launcher's own message is the reason.

There is one launcher at a time. While it runs it restarts no agent. When it has ended, with all agents, the next `open`
starts another one for the hosts that had an agent until then. Some launchers give up on all hosts because of one; the
hosts that the launcher names are excluded, and the others are tried without them.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import dataclasses
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

from rollbook import agent
from rollbook.agent.wire import slurp
from rollbook.errors import AgentFailed, TimedOut, TransportError, UsageError
from rollbook.hosts import Host
from rollbook.transports.base import TIMEOUT, Channel, Route
from rollbook.transports.collector import BOOT_ID
from rollbook.transports.launch import AgentChannel, Launch
from rollbook.transports.launcher_output import first_message, message_about, messages
from rollbook.transports.listener import own_addresses
from rollbook.transports.options import ConnectBack, Python
from rollbook.transports.pipe import Ending

__all__ = ["Launcher", "count_launched", "launching"]

LINES_PER_SECOND = 10_000  # of all agents together, on the launcher's stdout
RETRY_AFTER = 10.0  # seconds before a launcher that could not be started is tried again


@runtime_checkable
class Expecting(Protocol):
    """A transport that may start agents which cannot be sent orders."""

    def expect(self, hosts: Sequence[Host], script: bytes) -> None:
        """Announce the hosts that will be opened, and the orders for such agents."""


@dataclasses.dataclass(eq=False, kw_only=True)
class Launcher(abc.ABC):
    """What launcher transports share; a subclass knows how to start the agents and what error messages mean.

    An agent has two thirds of `timeout`, the time for each host in seconds, to arrive.
    """

    python: Python = None
    connect_back: ConnectBack = None
    timeout: float = TIMEOUT
    name = "launcher"
    program = "the launcher"
    messages_apply_to_all = True
    """Whether a message that names no host is about each of them."""

    def __post_init__(self) -> None:
        if self.python == "none":
            raise UsageError(f"--via {self.name} needs Python on the hosts; the shell stand-in cannot connect back")
        self._hosts: list[Host] = []
        self._script = b""
        self._launch: Launch | None = None
        self._failure: TransportError | None = None
        self._retry_at = 0.0
        self._unusable: Mapping[str, TransportError] = {}
        self._excluded: dict[str, TransportError] = {}
        self._addresses: dict[str, str] = {}
        self._starting = asyncio.Lock()

    async def unusable_hosts(self, hosts: Sequence[Host]) -> dict[str, TransportError]:
        """Hosts that the launcher cannot start an agent on, and why: one of them might make it fail for all."""
        del hosts
        return {}

    @abc.abstractmethod
    async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
        """The command line that runs the program once on each of the hosts."""

    @abc.abstractmethod
    def variables(self) -> tuple[str, str]:
        """The environment variables with an agent's rank and, if the launcher sets one, the name of its node."""

    def label(self) -> re.Pattern[bytes] | None:
        """What the launcher puts before each line of a process, with the rank as its group; None if nothing."""
        return None

    async def addresses(self, hosts: Sequence[Host]) -> dict[str, str]:
        """Addresses by host name, for launchers whose messages name hosts by address; looked up after a failure."""
        del hosts
        return {}

    def classify(self, message: str) -> type[TransportError]:
        """The kind of failure that a message of the launcher reports."""
        del message
        return AgentFailed

    def expect(self, hosts: Sequence[Host], script: bytes) -> None:
        """Announce the hosts that will be opened, and the orders for agents that cannot be sent any."""
        self._hosts, self._script = list(hosts), script

    async def open(self, host: Host) -> Channel:
        """Wait for the host's agent; the first call starts the launcher for all hosts."""
        channel = None
        while channel is None:
            launch = await self._current_launch(host)
            if host.name in self._unusable:
                raise self._unusable[host.name].with_traceback(None)  # raised repeatedly, it would keep every traceback
            if host.name not in launch.channels:
                raise AgentFailed(f"{self.program} was started for other hosts")
            channel = await self._arrival(launch, host)
            if reason := launch.conflicts.get(host.name):
                raise AgentFailed(reason)
            if channel is None and not self._addresses:
                self._addresses = await self.addresses(launch.hosts)
            if channel is None and not self._can_retry(launch):
                raise self._missing(host, launch.output, launch.code or 0)
        if channel.opened:
            raise self._not_restarted(channel)
        channel.opened = True
        return channel

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """Why an agent that arrived sent no greeting."""
        del heard
        return self._missing(host, ending.stderr, ending.code)

    async def close(self) -> None:
        """End the launcher and every agent; a later `open` starts it again."""
        self._excluded.clear()
        if self._launch is not None:
            self._launch.dismissed = True
        await self._end()

    async def _end(self) -> None:
        launch, self._launch, self._failure = self._launch, None, None
        if launch is not None:
            await launch.close()

    async def _arrival(self, launch: Launch, host: Host) -> AgentChannel | None:
        """The host's agent; None if the launcher ended without it."""
        patience = round(self.timeout * 2 / 3, 2)
        if host.name not in launch.late:
            launch.still_due.add(host.name)
        try:
            async with asyncio.timeout(patience):
                channel = await asyncio.shield(launch.channels[host.name])
        except TimeoutError:
            launch.late.add(host.name)
            message = self._message_about(launch.output, host) or first_message(launch.output)
            detail = f"; {self.program} reports: {message}" if message else ""
            raise TimedOut(f"no agent arrived from the host within {patience:g} s{detail}") from None
        finally:
            launch.still_due.discard(host.name)
        if channel is None:
            launch.reported_missing.add(host.name)
        return channel

    def _can_retry(self, launch: Launch) -> bool:
        """Whether another launch may do better: no agent arrived, and the launcher named the hosts that failed."""
        if launch.dismissed or launch is not self._launch:
            return not launch.dismissed  # another host has started the next launch
        blamed = [host for host in launch.hosts if self._message_about(launch.output, host)]
        if launch.arrived or not 0 < len(blamed) < len(launch.hosts):
            return False
        self._excluded |= {host.name: self._missing(host, launch.output, launch.code or 0) for host in blamed}
        return True

    def _missing(self, host: Host, output: str, code: int) -> TransportError:
        if line := self._message_about(output, host):
            return self.classify(line)(f"{self.program}: {line.removeprefix(f'{self.program}: ')}")
        message = first_message(output) or f"it ended with code {code} and printed nothing"
        kind: type[TransportError] = AgentFailed
        for line in messages(output):
            if self.classify(line) is not AgentFailed:
                kind, message = self.classify(line), line
                break
        if not self.messages_apply_to_all and len(self._hosts) > 1:
            kind = AgentFailed
        return kind(f"{self.program} started no agent on the host: {message}{self.advice(message)}")

    def advice(self, message: str) -> str:
        """What to do about a message of the launcher, to be appended; empty if the message is enough."""
        del message
        return ""

    def _message_about(self, output: str, host: Host) -> str:
        address = self._addresses.get(host.name, "")
        return message_about(output, host.name) or (message_about(output, address) if address else "")

    def _not_restarted(self, channel: AgentChannel) -> AgentFailed:
        detail = f": {channel.failure}" if channel.failure else ""
        return AgentFailed(f"the agent is gone, and {self.program} does not restart agents{detail}")

    async def _current_launch(self, host: Host) -> Launch:
        """The launch in progress; a new one if there is none, or if the last one is over for this host."""
        async with self._starting:
            if self._launch is not None and self._launch.is_over_for(host):
                closed = self._launch.closed_early()
                self._excluded |= {channel.host.name: self._not_restarted(channel) for channel in closed}
                await self._end()
            if self._failure is not None and time.monotonic() < self._retry_at:
                raise self._failure.with_traceback(None)
            if self._launch is None:
                hosts = self._hosts if any(one.name == host.name for one in self._hosts) else [host]
                try:
                    self._unusable = {**await self.unusable_hosts(hosts), **self._excluded}
                    self._launch = await self._start([one for one in hosts if one.name not in self._unusable])
                except TransportError as error:
                    self._failure, self._retry_at = error, time.monotonic() + RETRY_AFTER
                    raise
            return self._launch

    async def _start(self, hosts: Sequence[Host]) -> Launch:
        launch = Launch(self.program, hosts, self._script, self.label())
        if not hosts:
            return launch
        pace = max(2, 1000 * len(hosts) // LINES_PER_SECOND)
        addresses = [self.connect_back] if self.connect_back else own_addresses()
        boot = slurp(BOOT_ID) or "-"
        back = "/".join(("{port}", *self.variables(), str(pace), boot, ",".join(a for a in addresses if a != "none")))
        template = await self.argv(hosts, ["{agent}"])

        def argv(port: int) -> list[str]:
            program = agent.launched_argv(self.python, back.format(port=port), self._script)
            return [word for part in template for word in (program if part == "{agent}" else [part])]

        await launch.start(argv, self.connect_back)
        return launch


def count_launched(hosts: Sequence[Host], route: Route) -> int:
    """How many of the hosts have their agents started by a launcher."""
    return sum(isinstance(route(host), Launcher) for host in hosts)


@contextlib.asynccontextmanager
async def launching(hosts: Sequence[Host], route: Route, script: bytes) -> AsyncIterator[None]:
    """Announce hosts and script to the transports that expect them; end launchers at the end of the block.

    `script` holds the orders for agents that cannot be sent any (the agent's `then` and `wait`).
    """
    expecting: dict[Expecting, list[Host]] = {}
    for host in hosts:
        transport = route(host)
        if isinstance(transport, Expecting):
            expecting.setdefault(transport, []).append(host)
    for one, its in expecting.items():
        one.expect(its, script)
    try:
        yield
    finally:
        await asyncio.gather(*(one.close() for one in expecting if isinstance(one, Launcher)))
