"""One run of a launcher: its process, the port its agents come back to, and a place for each host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence

from rollbook import agent
from rollbook.errors import AgentFailed
from rollbook.hosts import Host
from rollbook.transports.launcher_output import about
from rollbook.transports.listener import ADDRESSES, Listener, Who
from rollbook.transports.merged import Merged
from rollbook.transports.pipe import Ending, Pipe

__all__ = ["Back", "Launch"]

READ_SIZE = 256 * 1024
LAST_LINES = 0.5  # seconds that what a dead launcher printed may still be on its way
LAST_WORDS = 1.0  # seconds in which a launcher says what became of an agent that is gone
TOGETHER = 3.0  # seconds within which agents end with their launcher


class Back:
    """The channel to one agent that came back, by a connection of its own or by lines on the launcher's stdout.

    Without a `writer` there is no way to the agent: it follows the orders it was started with, and what is written
    here goes nowhere.
    """

    def __init__(self, launch: Launch, host: Host, who: Who, reader: asyncio.StreamReader) -> None:
        self.host, self.who, self.reader = host, who, reader
        self.writer: asyncio.StreamWriter | None = None
        self.opened = False
        self.closed = False
        self.last_words = ""
        self.left: float | None = None  # when it was found to be gone, by the monotonic clock
        self._launch = launch
        self._turn = asyncio.Lock()
        self._told_to_stop = False

    @property
    def gone(self) -> bool:
        """Whether nothing more can come from the agent."""
        return self.closed or self.reader.at_eof()

    def take(self, lines: bytes) -> None:
        """Take lines that came on the launcher's stdout; after the end they are of no use."""
        if not self.closed and not self._launch.over.is_set():
            self.reader.feed_data(lines)

    async def read(self) -> bytes:
        """The next bytes; empty when the agent has closed, or we have."""
        async with self._turn:  # a stream has one reader at a time, and we may close while another reads
            try:
                return await self.reader.read(READ_SIZE)
            except OSError:
                return b""

    async def write(self, data: bytes) -> None:
        """Send orders; an agent that is gone swallows them."""
        self._told_to_stop |= data.endswith(b"stop\n")
        if self.writer is None:
            self._launch.order(data)
        elif not self.closed:
            with contextlib.suppress(OSError):
                self.writer.write(data)
                await self.writer.drain()

    async def close(self, grace: float = 0.0) -> Ending:
        """Close the connection, on which the agent ends; the launcher is ended with the last of them."""
        self.left = self.left or time.monotonic()
        if not self.closed and self.writer is not None:
            with contextlib.suppress(OSError, TimeoutError):
                if self.writer.can_write_eof() and grace:
                    self.writer.write_eof()
                    async with asyncio.timeout(grace):
                        while await self.read():
                            pass
            self.writer.transport.abort()
        self.closed = True
        self.reader.feed_eof()
        self.last_words = "" if self._told_to_stop else await self._launch.words(self.host, self.who)
        return Ending(self._launch.code or 0, self.last_words)


class Launch:
    """Starts the launcher for all hosts and puts each agent that comes back in its host's place.

    Until `over`, agents may come; afterwards the launcher is gone, and places that are empty stay so. Agents with a
    connection of their own may outlive their launcher.
    """

    def __init__(self, program: str, hosts: Sequence[Host], script: bytes) -> None:
        self.program, self.hosts, self.script = program, list(hosts), script
        self.places: dict[str, asyncio.Future[Back | None]] = {}
        self.token = secrets.token_hex(32)
        self.over = asyncio.Event()
        self.answered: set[str] = set()  # hosts that were told that their agent does not come
        self.dismissed = False  # by us, with no other to follow
        self._ended: float | None = None
        self._listener = Listener(self.token, self._welcome, ADDRESSES * len(self.hosts))
        self._printed, self._complained = Merged(self._heard), Merged(self._heard)
        self._pipe: Pipe | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._signalled = False

    async def start(self, argv: Callable[[int], list[str]]) -> None:
        """Listen, then start the program; `argv` makes its command line from the port."""
        loop = asyncio.get_running_loop()
        self.places = {host.name: loop.create_future() for host in self.hosts}
        await self._listener.open()
        try:
            # The token goes by the environment, which only its owner can read; argv anybody can.
            environ = {**os.environ, agent.TOKEN: self.token}
            program = argv(self._listener.port)
            self._pipe = Pipe(program, environ, mortal=True, roomy=True, listener=self._complained.feed)
        except AgentFailed:
            self._listener.close()
            raise
        self._watching = [asyncio.create_task(self._read(self._pipe)), asyncio.create_task(self._watch(self._pipe))]

    @property
    def code(self) -> int | None:
        """The launcher's exit code, None while it runs."""
        return self._pipe.code if self._pipe else None

    @property
    def said(self) -> str:
        """What the launcher printed beside its agents' lines."""
        return self._complained.words + self._printed.words

    @property
    def came(self) -> list[Back]:
        """The agents that ever came."""
        done = [place.result() for place in self.places.values() if place.done()]
        return [back for back in done if back is not None]

    @property
    def used(self) -> bool:
        """Whether every agent that ever came is gone again, and at least one came."""
        return bool(self.came) and all(back.gone for back in self.came)

    def spent(self, host: Host) -> bool:
        """Whether there is nothing more to hope for: agents came and went, or none came and the host knows."""
        return self.used or (not self.came and host.name in self.answered)

    def lost_early(self) -> list[Back]:
        """The agents that were gone while the launcher still ran; what took them may be what ended it."""
        if self._ended is None:
            return []
        return [back for back in self.came if back.left is not None and back.left < self._ended - TOGETHER]

    def order(self, data: bytes) -> None:
        """An order for agents that cannot be told: those with a `wait` in their orders go on at a signal."""
        ending = data.startswith((b"go\tend", b"stop"))
        if ending and b"\nwait\n" in self.script and self._pipe is not None and not self._signalled:
            self._signalled = True
            self._pipe.signal(signal.SIGUSR1)

    async def words(self, host: Host, who: Who) -> str:
        """What the launcher says of an agent that is gone; it may need a moment."""
        for _ in range(round(LAST_WORDS / 0.05)):
            if self.over.is_set() or about(self.said, host.name, who.rank):
                break
            await asyncio.sleep(0.05)
        ended = f"{self.program} ended with code {self.code}" if self.code else ""
        return about(self.said, host.name, who.rank) or ended

    async def close(self) -> None:
        """End agents and launcher, in order."""
        self._listener.close()
        lines = False
        for place in self.places.values():
            if place.done() and (back := place.result()) is not None:
                lines |= back.writer is None and not back.gone
                if back.writer is not None:
                    back.writer.transport.abort()  # also where the agent has closed: that half-closes a connection
                back.closed = True
        if self._pipe is not None:
            # Agents end with their connections and the launcher after them; those without need its help.
            await self._pipe.close(grace=0.0 if lines or not self.used else 5.0)
        for task in self._watching:
            task.cancel()
        if self._watching:
            await asyncio.wait(self._watching)
        self._finish()

    def _finish(self) -> None:
        self._ended = self._ended or time.monotonic()
        self.over.set()
        self._listener.close()
        for place in self.places.values():
            if not place.done():
                place.set_result(None)
            elif (back := place.result()) is not None and back.writer is None:
                back.reader.feed_eof()

    async def _read(self, pipe: Pipe) -> None:
        while data := await pipe.read():
            self._printed.feed(data)

    async def _watch(self, pipe: Pipe) -> None:
        await pipe.gone()
        await asyncio.wait([self._watching[0]], timeout=LAST_LINES)
        self._finish()

    def _welcome(self, who: Who, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back = self._place(who, reader)
        if back is None:
            writer.transport.abort()
            return
        back.writer = writer
        if all(place.done() for place in self.places.values()):
            self._listener.close()

    def _heard(self, tag: str, who: Who) -> Callable[[bytes], None]:
        del tag
        back = self._place(who, asyncio.StreamReader())
        return back.take if back else lambda _: None

    def _place(self, who: Who, reader: asyncio.StreamReader) -> Back | None:
        """Give an agent its host's place; None where nobody asked for it, or another is there."""
        host = self._host_of(who)
        if host is None:
            return None
        back = Back(self, host, who, reader)
        self.places[host.name].set_result(back)
        return back

    def _host_of(self, who: Who) -> Host | None:
        """The host of an agent: by the launcher's name for it, its own, its address, or its place in the order."""
        free = [host for host in self.hosts if not self.places[host.name].done()]
        short = who.hostname.partition(".")[0]
        for known in (who.node, who.hostname, who.address):
            for host in free:
                if known and known.lower() == host.name.lower():
                    return host
        for host in free:
            if short and not who.node and host.name.partition(".")[0].lower() == short.lower():
                return host
        if who.rank is not None and not who.node and who.rank < len(self.hosts) and self.hosts[who.rank] in free:
            return self.hosts[who.rank]
        return None
