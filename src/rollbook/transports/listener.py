"""The port that launched agents connect to; it is open only while agents are expected.

Each side proves to the other that it knows a random token, which the agents have in their environment; the token itself
is never sent. All that follows is authenticated with keys derived from the token and the nonces of both sides
(`rollbook.agent.secure`), but not encrypted. A connection that proves nothing takes a little memory for a few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import secrets
import socket
from collections.abc import Callable
from typing import NamedTuple

from rollbook.agent.secure import Seal, derive, same
from rollbook.hosts.local import read_machine
from rollbook.transports.claims import Claim

__all__ = ["ADDRESSES", "Connection", "Listener", "own_addresses"]

PROOF_SECONDS = 20.0
UNPROVEN = 256  # unauthenticated connections beside those expected; above that the oldest is dropped
BUFFER = 16 * 1024  # bytes that a connection may send before they are read
BACKLOG = 512  # connections that may wait to be accepted, and that are accepted in one turn of the loop
NO_ROOM = 1.0  # seconds to wait when no connection can be accepted, for example because no descriptor is free
ADDRESSES = 16


class Connection(NamedTuple):
    """A connection whose agent knows the token: its claim, the streams, and the seals for both directions."""

    claim: Claim
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    send: Seal
    receive: Seal


class Listener:
    """Listens until closed, and passes connections that know the token to `accepted`.

    `expected` is the number of connections that agents may make at the same moment: each tries all addresses at once.

    It accepts by itself because `asyncio.Server` leaks a connection that it has accepted but not yet set up when it is
    closed (https://github.com/python/cpython/issues/109564). That is common here: an agent connects to every address,
    and the first connection that proves itself closes the port.
    """

    def __init__(self, token: str, accepted: Callable[[Connection], None], expected: int = 0) -> None:
        self._token, self._accepted, self._room = token.encode(), accepted, UNPROVEN + expected
        self._unproven: dict[socket.socket, asyncio.Task[None]] = {}
        self._listening: list[socket.socket] = []
        self.port = 0

    async def open(self, address: str | None = None) -> None:
        """Listen on a free port: on this address if the machine has it, otherwise on all addresses."""
        everywhere = ["0.0.0.0", "::"]  # noqa: S104 - agents connect from any network
        for name in [address] if address and _is_own_address(address) else everywhere:
            family = socket.AF_INET6 if ":" in name else socket.AF_INET
            with contextlib.suppress(OSError):  # a machine may lack IPv6 or IPv4
                listening = socket.create_server((name, self.port), family=family, backlog=BACKLOG)
                listening.setblocking(False)
                self._listening.append(listening)
                self.port = self.port or listening.getsockname()[1]
                self._listen(listening)

    def close(self) -> None:
        """Stop listening and drop connections that have proved nothing; agents that were accepted stay."""
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

    async def _meet(self, accepted: socket.socket) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=BUFFER)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        connection = None
        try:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(PROOF_SECONDS):
                    connection = await self._authenticate(reader, writer)
        finally:
            if connection is None:
                transport.abort()
        if connection is not None:
            del self._unproven[accepted]
            self._accepted(connection)

    def _met(self, connection: socket.socket, _: asyncio.Task[None]) -> None:
        """Close a connection that was not accepted; a task that is cancelled before its first step cannot."""
        if self._unproven.pop(connection, None):
            connection.close()

    async def _authenticate(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection | None:
        ours = secrets.token_hex(16).encode()
        writer.write(ours + b"\n")
        fields = (await reader.readuntil(b"\n")).split()
        if len(fields) != 7 or fields[0] != b"rollbook":
            return None
        *claim, theirs, proof = fields[1:]
        words = ours, theirs, *claim
        if not same(proof, derive(self._token, b"agent", *words).hex().encode()):
            return None
        writer.write(derive(self._token, b"collector", *words).hex().encode() + b"\n")
        await writer.drain()
        _keep_alive(writer.get_extra_info("socket"))
        rank, node, hostname, instance = (word.decode("utf-8", "replace") for word in claim)
        peer = ipaddress.ip_address(writer.get_extra_info("peername")[0].partition("%")[0])
        return Connection(
            Claim(int(rank) if rank.isdecimal() else None, "" if node == "-" else node, hostname, str(peer), instance),
            reader,
            writer,
            send=Seal(derive(self._token, b"collector-key", *words)),
            receive=Seal(derive(self._token, b"agent-key", *words)),
        )


def _is_own_address(name: str) -> bool:
    """Whether this is an address of this machine, not a name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return read_machine().is_called(name)


def own_addresses() -> list[str]:
    """Addresses of this machine that other hosts might reach; loopback if it has no other."""
    found = [ipaddress.ip_address(address) for address in read_machine().addresses if "%" not in address]
    wide = [address for address in found if not address.is_loopback and not address.is_link_local]
    return [str(address) for address in sorted(wide, key=lambda a: (a.version, a))[:ADDRESSES]] or ["127.0.0.1"]


def _keep_alive(sock: socket.socket) -> None:
    """Notice within 20 s that a host has disappeared, as ssh does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
