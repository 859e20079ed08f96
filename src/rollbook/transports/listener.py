"""Where launched agents connect back to: one port, open only while agents are awaited.

Each side proves to the other that it knows a random token, which went to the agents in their environment; the token
itself is never sent. It keeps strangers out and their orders from the agents; what is carried is not encrypted, as
launchers' own traffic is not. A connection that proves nothing costs a little memory for a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Callable
from typing import NamedTuple

from rollbook.hosts.local import read_machine

__all__ = ["ADDRESSES", "Listener", "Who", "own_addresses"]

PROOF_SECONDS = 20.0
UNPROVEN = 256  # connections at once, beside those expected, that have not proved themselves; above, the oldest goes
BUFFER = 16 * 1024  # what a connection may send before it is read
BACKLOG = 512  # connections that may wait to be accepted, and that are accepted in one turn of the loop
NO_ROOM = 1.0  # seconds to wait when no connection can be accepted, for example because no descriptor is free
ADDRESSES = 16


class Who(NamedTuple):
    """What an agent says of its place: its rank, the name its launcher has for its node, its own host name.

    `address` is where its connection comes from. What is not known is empty.
    """

    rank: int | None
    node: str
    hostname: str
    address: str = ""


Welcome = Callable[[Who, asyncio.StreamReader, asyncio.StreamWriter], None]


class Listener:
    """Accepts connections until closed, and hands those that know the token to `welcome`.

    `expected` is how many honest ones may come at the same moment: agents try all addresses at once.

    It accepts by itself because `asyncio.Server` leaks a connection that it has accepted but not yet set up when it is
    closed (https://github.com/python/cpython/issues/109564). That is common here: an agent connects to every address,
    and the first connection that proves itself closes the port.
    """

    def __init__(self, token: str, welcome: Welcome, expected: int = 0) -> None:
        self._token, self._welcome, self._room = token.encode(), welcome, UNPROVEN + expected
        self._unproven: dict[socket.socket, asyncio.Task[None]] = {}
        self._listening: list[socket.socket] = []
        self.port = 0

    async def open(self) -> None:
        """Listen on a free port, on every address of this machine."""
        for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - agents come from anywhere
            with contextlib.suppress(OSError):  # a machine may be without IPv6, or without IPv4
                listening = socket.create_server((everywhere, self.port), family=family, backlog=BACKLOG)
                listening.setblocking(False)
                self._listening.append(listening)
                self.port = self.port or listening.getsockname()[1]
                self._listen(listening)

    def close(self) -> None:
        """Stop listening and drop connections that have proved nothing; agents that were welcomed stay."""
        for listening in self._listening:
            asyncio.get_running_loop().remove_reader(listening)
            listening.close()
        self._listening.clear()
        for meeting in self._unproven.values():
            meeting.cancel()

    def _listen(self, listening: socket.socket) -> None:
        if listening in self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)  # it stays readable, and the loop would spin
                loop.call_later(NO_ROOM, self._listen, listening)
                return
            connection.setblocking(False)
            meeting = self._unproven[connection] = asyncio.create_task(self._meet(connection))
            meeting.add_done_callback(functools.partial(self._met, connection))
            if len(self._unproven) > self._room:
                next(meeting for meeting in self._unproven.values() if not meeting.cancelling()).cancel()

    async def _meet(self, connection: socket.socket) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=BUFFER)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, connection)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        who = None
        try:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(PROOF_SECONDS):
                    who = await self._proven(reader, writer)
        finally:
            if who is None:
                transport.abort()
        if who is not None:
            del self._unproven[connection]
            self._welcome(who, reader, writer)

    def _met(self, connection: socket.socket, _: asyncio.Task[None]) -> None:
        """Close a connection that was not welcomed; a task that is cancelled before its first step cannot."""
        if self._unproven.pop(connection, None):
            connection.close()

    async def _proven(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Who | None:
        ours = secrets.token_hex(16).encode()
        writer.write(ours + b"\n")
        words = (await reader.readuntil(b"\n")).split()
        if len(words) != 6 or words[0] != b"rollbook":
            return None
        *who, theirs, proof = words[1:]
        if not hmac.compare_digest(proof, self._proof(b"agent", ours, theirs, *who)):
            return None
        writer.write(self._proof(b"collector", ours, theirs) + b"\n")
        await writer.drain()
        _keep_alive(writer.get_extra_info("socket"))
        rank, node, hostname = (word.decode("utf-8", "replace") for word in who)
        peer = ipaddress.ip_address(writer.get_extra_info("peername")[0].partition("%")[0])
        return Who(int(rank) if rank.isdecimal() else None, "" if node == "-" else node, hostname, str(peer))

    def _proof(self, *words: bytes) -> bytes:
        return hmac.new(self._token, b" ".join(words), "sha256").hexdigest().encode()


def own_addresses() -> list[str]:
    """Addresses of this machine that other hosts might reach; loopback where it has no other."""
    found = [ipaddress.ip_address(address) for address in read_machine().addresses if "%" not in address]
    wide = [address for address in found if not address.is_loopback and not address.is_link_local]
    return [str(address) for address in sorted(wide, key=lambda a: (a.version, a))[:ADDRESSES]] or ["127.0.0.1"]


def _keep_alive(sock: socket.socket) -> None:
    """Notice within 20 s that a host is gone without a word, as ssh does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
