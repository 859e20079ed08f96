"""Where launched agents connect back to: one port, open only while agents are awaited.

Each side proves to the other that it knows a random token, which went to the agents in their environment; the token
itself is never sent. It keeps strangers out and their orders from the agents; what is carried is not encrypted, as
launchers' own traffic is not. A connection that proves nothing costs a little memory for a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from rollbook.hosts.local import read_machine

__all__ = ["ADDRESSES", "Listener", "Who", "own_addresses"]

PROOF_SECONDS = 20.0
UNPROVEN = 256  # connections at once, beside those expected, that have not proved themselves; above, the oldest goes
BUFFER = 16 * 1024  # what a connection may send before it is read
BACKLOG = 512  # asyncio takes so many in one go, and complains once for each that it has no room for
ADDRESSES = 16


class Who(NamedTuple):
    """What an agent says of its place: its rank, the name its launcher has for its node, its own host name.

    `address` is where its connection comes from. What is not known is empty.
    """

    rank: int | None
    node: str
    hostname: str
    address: str = ""


Welcome = Callable[[Who, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """Accepts connections until closed, and hands those that know the token to `welcome`.

    `expected` is how many honest ones may come at the same moment: agents try all addresses at once.
    """

    def __init__(self, token: str, welcome: Welcome, expected: int = 0) -> None:
        self._token, self._welcome, self._room = token.encode(), welcome, UNPROVEN + expected
        self._unproven: dict[asyncio.StreamWriter, None] = {}
        self._meetings: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self.port = 0

    async def open(self) -> None:
        """Listen on a free port, on every address of this machine."""
        for family, everywhere in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):  # noqa: S104 - agents come from anywhere
            with contextlib.suppress(OSError):  # a machine may be without IPv6, or without IPv4
                server = await asyncio.start_server(
                    self._connected, everywhere, self.port, family=family, backlog=BACKLOG, limit=BUFFER
                )
                self._servers.append(server)
                self.port = self.port or server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stop listening and drop who has not proved anything; agents that were welcomed stay."""
        for server in self._servers:
            server.close()
        for writer in self._unproven:
            writer.transport.abort()
        self._servers.clear()
        self._unproven.clear()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        meeting = asyncio.create_task(self._meet(reader, writer))
        self._meetings.add(meeting)
        meeting.add_done_callback(self._meetings.discard)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._unproven[writer] = None
        if len(self._unproven) > self._room:
            oldest = next(iter(self._unproven))
            del self._unproven[oldest]
            oldest.transport.abort()
        who = None
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(PROOF_SECONDS):
                who = await self._proven(reader, writer)
        self._unproven.pop(writer, None)
        if who is None:
            writer.transport.abort()
        else:
            await self._welcome(who, reader, writer)

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
