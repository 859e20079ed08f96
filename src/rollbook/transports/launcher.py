"""Transports whose agents are all started by one program, such as srun or mpirun.

The first `open` starts the launcher for every host that is expected, the others wait for their host's agent. Agents
connect back over TCP; where the network forbids that they send lines on the launcher's stdout and follow the script
they were started with. A host whose agent does not come gets the launcher's own words as its reason.

There is one launcher at a time. While it runs it starts nothing anew: a host whose agent is gone stays so. When it
ended, with all agents, the next `open` starts another for the hosts that were there until then. Some launchers give up
on all hosts for one; those that the launcher names are left out, and the rest are tried without them.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from rollbook import agent
from rollbook.errors import AgentFailed, TimedOut, TransportError, UsageError
from rollbook.hosts import Host
from rollbook.transports.base import Channel, Transport
from rollbook.transports.launch import Back, Launch
from rollbook.transports.launcher_output import about, gist, sentences
from rollbook.transports.listener import own_addresses
from rollbook.transports.pipe import Ending

__all__ = ["Launcher", "launched", "launching"]

LINES_PER_SECOND = 10_000  # of all agents together, on one stdout
AGAIN = 10.0  # seconds for which a launcher that could not be started is not tried by one host after the other


class Launcher(abc.ABC):
    """What launcher transports have in common; one of them says how to start the agents, and what errors mean.

    `connect_back` is the address of this machine that agents are to use instead of any they can reach, or `none` for
    lines only. `patience` is how long, in seconds, an agent may take to come.
    """

    name = "launcher"
    program = "the launcher"
    speaks_for_all = True
    """Whether what it says without naming a host holds for each of them."""

    def __init__(self, *, python: str | None = None, connect_back: str | None = None, patience: float = 40.0) -> None:
        if python == "none":
            raise UsageError(f"--via {self.name} needs Python on the hosts; the shell stand-in cannot connect back")
        self._python, self._connect_back, self._patience = python, connect_back, patience
        self._hosts: list[Host] = []
        self._script = b""
        self._launch: Launch | None = None
        self._failure: TransportError | None = None
        self._again = 0.0
        self._barred: Mapping[str, TransportError] = {}
        self._left_out: dict[str, TransportError] = {}
        self._starting: asyncio.Lock | None = None

    async def screen(self, hosts: Sequence[Host]) -> dict[str, TransportError]:
        """The hosts that the launcher cannot be asked for, and why; one of them might keep it from all."""
        del hosts
        return {}

    @abc.abstractmethod
    async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
        """The command line that runs the program once on each of the hosts."""

    @abc.abstractmethod
    def variables(self) -> tuple[str, str]:
        """The variables in which the launcher tells an agent its rank, and the name of its node if it does."""

    def meaning(self, words: str) -> type[TransportError]:
        """What kind of failure the launcher's words tell of."""
        del words
        return AgentFailed

    def expect(self, hosts: Sequence[Host], script: bytes) -> None:
        """Say which hosts are going to be opened, and the orders for agents that nobody can talk to."""
        self._hosts, self._script = list(hosts), script

    async def open(self, host: Host) -> Channel:
        """Wait for the host's agent; the first call starts the launcher for all hosts."""
        back = None
        while back is None:
            launch = await self._launched(host)
            if host.name not in launch.places and host.name not in self._barred:
                raise AgentFailed(f"{self.program} was started for other hosts")
            if host.name in self._barred:
                raise self._barred[host.name].with_traceback(None)  # raised again and again, it would keep them all
            back = await self._awaited(launch, host)
            if back is None and not self._without_some(launch):
                raise self._missing(host, launch.said, launch.code or 0)
        if back.opened:
            raise self._gone(back)
        back.opened = True
        return back

    def explain(self, host: Host, ending: Ending, heard: bytes) -> TransportError:
        """Say in words why an agent that came did not greet."""
        del heard
        return self._missing(host, ending.stderr, ending.code)

    async def close(self) -> None:
        """End the launcher, and with it every agent; a later `open` starts it anew."""
        self._left_out.clear()
        if self._launch is not None:
            self._launch.dismissed = True
        await self._end()

    async def _end(self) -> None:
        launch, self._launch, self._failure = self._launch, None, None
        if launch is not None:
            await launch.close()

    async def _awaited(self, launch: Launch, host: Host) -> Back | None:
        """The host's agent; None where the launcher ended without it."""
        try:
            async with asyncio.timeout(self._patience):
                back = await asyncio.shield(launch.places[host.name])
        except TimeoutError:
            said = about(launch.said, host.name) or gist(launch.said)
            words = f"; {self.program} says: {said}" if said else ""
            raise TimedOut(f"no agent came from the host within {self._patience:g} s{words}") from None
        if back is None:
            launch.answered.add(host.name)
        return back

    def _without_some(self, launch: Launch) -> bool:
        """Whether there is a launch to hope for: nobody came with this one, and it names hosts that were to blame."""
        if launch.dismissed or launch is not self._launch:
            return not launch.dismissed  # else another host's turn has seen to it
        blamed = [host for host in launch.hosts if about(launch.said, host.name)]
        if launch.came or not 0 < len(blamed) < len(launch.hosts):
            return False
        self._left_out |= {host.name: self._missing(host, launch.said, launch.code or 0) for host in blamed}
        return True

    def _missing(self, host: Host, said: str, code: int) -> TransportError:
        if line := about(said, host.name):
            return self.meaning(line)(f"{self.program}: {line}")
        words = gist(said) or f"it ended with code {code} and said nothing"
        kind: type[TransportError] = AgentFailed
        for line in sentences(said):
            if self.meaning(line) is not AgentFailed:
                kind, words = self.meaning(line), line
                break
        if not self.speaks_for_all and len(self._hosts) > 1:
            kind = AgentFailed
        return kind(f"{self.program} brought no agent from the host: {words}")

    def _gone(self, back: Back) -> AgentFailed:
        words = f": {back.last_words}" if back.last_words else ""
        return AgentFailed(f"the agent is gone, and {self.program} starts each but once{words}")

    async def _launched(self, host: Host) -> Launch:
        """The launch under way; a new one where there is none, or where the last has nothing more for this host."""
        self._starting = self._starting or asyncio.Lock()
        async with self._starting:
            if self._launch is not None and self._launch.spent(host):
                self._left_out |= {back.host.name: self._gone(back) for back in self._launch.lost_early()}
                await self._end()
            if self._failure is not None and time.monotonic() < self._again:
                raise self._failure.with_traceback(None)
            if self._launch is None:
                hosts = self._hosts if any(one.name == host.name for one in self._hosts) else [host]
                try:
                    self._barred = {**await self.screen(hosts), **self._left_out}
                    self._launch = await self._start([one for one in hosts if one.name not in self._barred])
                except TransportError as error:
                    self._failure, self._again = error, time.monotonic() + AGAIN
                    raise
            return self._launch

    async def _start(self, hosts: Sequence[Host]) -> Launch:
        launch = Launch(self.program, hosts, self._script)
        if not hosts:
            return launch
        pace = max(2, 1000 * len(hosts) // LINES_PER_SECOND)
        addresses = [self._connect_back] if self._connect_back else own_addresses()
        back = "/".join(("{port}", *self.variables(), str(pace), ",".join(a for a in addresses if a != "none")))
        template = await self.argv(hosts, ["{agent}"])

        def argv(port: int) -> list[str]:
            program = agent.launched_argv(self._python, back.format(port=port), self._script)
            return [word for words in template for word in (program if words == "{agent}" else [words])]

        await launch.start(argv)
        return launch


def launched(hosts: Sequence[Host], route: Callable[[Host], Transport]) -> int:
    """How many of the hosts have their agents started by a launcher."""
    return sum(isinstance(route(host), Launcher) for host in hosts)


@contextlib.asynccontextmanager
async def launching(hosts: Sequence[Host], route: Callable[[Host], Transport], script: bytes) -> AsyncIterator[None]:
    """While inside, launchers among the transports know their hosts; on the way out they are ended.

    `script` are the orders that agents follow when nobody can talk to them (the agent's `then` and `wait`).
    """
    launchers: dict[Launcher, list[Host]] = {}
    for host in hosts:
        transport = route(host)
        if isinstance(transport, Launcher):
            launchers.setdefault(transport, []).append(host)
    for launcher, its in launchers.items():
        launcher.expect(its, script)
    try:
        yield
    finally:
        await asyncio.gather(*(launcher.close() for launcher in launchers))
