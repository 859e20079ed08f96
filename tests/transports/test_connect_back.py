"""Attacks on launched agents: a relay between agent and collector, impersonated hosts, and forged lines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from rollbook import agent
from rollbook.agent.secure import Seal, line_code
from rollbook.agent.wire import binary, slurp, text
from rollbook.errors import AgentFailed
from rollbook.hosts import Host
from rollbook.protocol.frames import Decoder
from rollbook.transports.claims import AddressBook, Claim
from rollbook.transports.launch import AgentChannel, Launch
from rollbook.transports.listener import Connection, Listener
from rollbook.transports.mpi import HYDRA_LABEL, OPEN_MPI_LABEL
from rollbook.transports.pipe import Pipe
from rollbook.transports.shared_output import MAX_OF_RANK, SharedOutput
from rollbook.transports.slurm import Slurm
from tests.support.agents import set_connect
from tests.support.waits import SECONDS

TOKEN = "the token"
BOOT = slurp("/proc/sys/kernel/random/boot_id")
HEADER = 4 + 16  # bytes before the data of a sealed message


async def start_agent(port: int, addresses: str, boot: str = BOOT) -> asyncio.subprocess.Process:
    """Start a real agent that connects to these addresses."""
    return await asyncio.create_subprocess_exec(
        *agent.launched_argv(None, f"{port}/RANK/NODE/2/{boot}/{addresses}", b"stop\n"),
        env={**os.environ, agent.TOKEN: TOKEN, "RANK": "0"},
        stdout=asyncio.subprocess.PIPE,
    )


class Relay:
    """Forwards a connection to the collector; after authentication it may insert orders and change the agent's data."""

    def __init__(self, target: int, order: Callable[[bytes], bytes], alter: Callable[[bytes], bytes]) -> None:
        self.target, self.order, self.alter = target, order, alter

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection."""
        out_reader, out_writer = await asyncio.open_connection("127.0.0.1", self.target)
        writer.write(await out_reader.readline())
        out_writer.write(await reader.readline())
        writer.write(await out_reader.readline())

        async def to_agent() -> None:
            while data := await out_reader.read(65536):
                writer.write(self.order(data))
            writer.close()

        async def to_collector() -> None:
            while data := await reader.read(65536):
                out_writer.write(self.alter(data))
            out_writer.close()

        await asyncio.gather(to_agent(), to_collector(), return_exceptions=True)


async def attack(
    orders: bytes, order: Callable[[bytes], bytes] = bytes, alter: Callable[[bytes], bytes] = bytes
) -> tuple[list[str], str, int]:
    """Send orders to an agent through a relay; return the received frames, the error and the exit status."""
    kinds: list[str] = []
    arrived: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    listener = Listener(TOKEN, arrived.set_result)
    await listener.open()
    server = await asyncio.start_server(Relay(listener.port, order, alter), "127.0.0.1", 0)
    process = await start_agent(server.sockets[0].getsockname()[1], "127.0.0.1")
    try:
        async with asyncio.timeout(SECONDS):
            launch = Launch("sh", [Host("a")], b"")
            connection = await arrived
            channel = AgentChannel(launch, Host("a"), connection.claim, connection)
            await channel.write(orders)
            decoder, reason = Decoder(), ""
            try:
                while data := await channel.read():
                    kinds += [frame.kind for frame in decoder.feed(data)]
            except AgentFailed as error:
                reason = str(error)
            connection.writer.transport.abort()
            await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
        server.close()
        listener.close()
    return kinds, reason, process.returncode or 0


def plan(path: Path) -> bytes:
    """Orders that run a program which creates a file."""
    return f"source\t0\t0\t100\t5000\nrun\ttouch\t{path}\ngo\tnow\n".encode()


def test_a_relay_that_changes_nothing(tmp_path: Path) -> None:
    """Orders that pass unchanged are executed: the other tests rely on this."""
    kinds, reason, _ = asyncio.run(attack(plan(tmp_path / "made") + b"then\nstop\n"))
    assert (kinds[0], kinds[-1], reason) == ("H", "E", "")
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "inserted",
    [
        lambda orders, _: orders,
        lambda orders, _: len(orders).to_bytes(4, "big") + b"\0" * 16 + orders,
        lambda orders, _: Seal(b"\0" * 32).seal(orders),
        lambda _, sent: sent,  # a replay
    ],
    ids=["raw", "without a code", "with another key", "repeated"],
)
def test_a_relay_cannot_insert_orders(tmp_path: Path, inserted: Callable[[bytes, bytes], bytes]) -> None:
    """If a program forwards the authentication and then inserts orders, the agent ends without executing them."""
    forged = plan(tmp_path / "owned")
    kinds, reason, _ = asyncio.run(attack(b"ping\t1\n", lambda data: data + inserted(forged, data)))
    assert not (tmp_path / "owned").exists()
    assert kinds in (["H"], ["H", "P"])
    assert reason == ""  # the connection simply closes


def test_a_relay_cannot_change_frames() -> None:
    """A frame with changed content and a valid checksum is rejected, and the reason names tampering."""

    def alter(data: bytes) -> bytes:
        if b"kind=python" in data:
            false = binary(b"H", 0, 1, 1, b"kind=forged\n")
            return len(false).to_bytes(4, "big") + data[4:HEADER] + false
        return data

    kinds, reason, _ = asyncio.run(attack(b"ping\t1\n", alter=alter))
    assert kinds == []
    assert reason == "the connection of the agent was tampered with: a message failed authentication"


def outgoing_address() -> str:
    """This machine's address for the default route; an address of a lab could disappear during the test."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.9", "outgoing"])
@pytest.mark.parametrize("near", [True, False])
def test_connections_to_the_same_host(address: str, near: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent connects to its own host only if the collector runs there; otherwise any user could listen there."""
    set_connect(monkeypatch, 0.2)  # at least one attempt is made, which is enough
    connections: list[str] = []
    address = outgoing_address() if address == "outgoing" else address

    async def main() -> None:
        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(address)
            writer.close()

        server = await asyncio.start_server(connected, address, 0)
        process = await start_agent(server.sockets[0].getsockname()[1], address, BOOT if near else "another")
        await asyncio.wait_for(process.communicate(), SECONDS)
        server.close()

    asyncio.run(main())
    assert bool(connections) == near


async def launch_of(*names: str) -> Launch:
    """A launch of these hosts that waits for agents."""
    launch = Launch("sh", [Host(name) for name in names], b"")
    launch.channels = {name: asyncio.get_running_loop().create_future() for name in names}
    return launch


A, B = frozenset({"10.0.0.1"}), frozenset({"10.0.0.2", "10.1.0.2"})


def conflicts(*steps: Claim | tuple[str, frozenset[str]]) -> dict[str, str]:
    """The conflicts of hosts a and b when agents claim them and names are resolved, in this order."""

    async def main() -> dict[str, str]:
        launch = await launch_of("a", "b")
        for step in steps:
            if isinstance(step, Claim):
                launch._assign(step)
            else:
                launch._addresses.add(*step)
        for name, reason in launch.conflicts.items():
            channel = await launch.channels[name]
            if channel is not None:
                with pytest.raises(AgentFailed, match="conflicting claims"):
                    await channel.read()
            assert reason.startswith("conflicting claims: ")
        return {name: reason.removeprefix("conflicting claims: ") for name, reason in launch.conflicts.items()}

    return asyncio.run(main())


FALSE_RANK = "frames of rank 1 came from the process of rank 0"
FOREIGN = "an agent at 10.0.0.1, an address of a, claims to be b"


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([("a", A), ("b", B), Claim(0, "", "a", "10.0.0.1"), Claim(1, "", "b", "10.0.0.1")], FOREIGN),
        ([("a", A), ("b", B), Claim(1, "", "b", "10.0.0.1"), Claim(0, "", "a", "10.0.0.1")], FOREIGN),
        ([Claim(1, "", "b", "10.0.0.1"), Claim(0, "", "a", "10.0.0.1"), ("a", A), ("b", B)], FOREIGN),
        ([Claim(1, "", "b", "10.0.0.1"), ("b", B), ("a", A)], FOREIGN),
        (
            [("a", A), Claim(1, "", "b", "10.9.9.9", "one"), Claim(1, "", "b", "10.0.0.1", "two")],
            "two agents claim to be b, at 10.9.9.9 and at 10.0.0.1",
        ),
        (
            [("a", A), Claim(1, "", "b", "", "one"), Claim(1, "", "b", "10.0.0.1", "two")],
            "two agents claim to be b, at 10.0.0.1",
        ),
        ([Claim(1, "", "b", "10.9.9.9"), Claim(1, "", "a", "10.9.9.8")], "two agents claim rank 1"),
        ([Claim(1, "", "b"), Claim(1, "", "a")], "two agents claim rank 1"),
        ([Claim(0, "", "a", attested=0), Claim(1, "", "b", attested=0)], FALSE_RANK),
        ([Claim(1, "", "b", attested=0), Claim(0, "", "a", attested=0)], FALSE_RANK),
        ([Claim(0, "", "a", attested=0), Claim(1, "", "b", attested=1), Claim(1, "", "b", attested=0)], FALSE_RANK),
    ],
)
def test_a_host_that_claims_to_be_another(steps: list[Claim | tuple[str, frozenset[str]]], reason: str) -> None:
    """It is detected in any order, even if names are resolved late, and both hosts fail with the reason."""
    assert conflicts(*steps) == {"a": reason, "b": reason}


@pytest.mark.parametrize(
    "steps",
    [
        [("a", A), ("b", B), Claim(0, "", "a", "10.0.0.1"), Claim(1, "", "b", "10.1.0.2")],
        [("a", A), ("b", B), Claim(0, "", "a", "10.7.0.1"), Claim(1, "", "b", "10.7.0.2")],  # another network
        [("a", A), ("b", A), Claim(0, "", "a", "10.0.0.1"), Claim(1, "", "b", "10.0.0.1")],  # one machine, two names
        [("a", A), Claim(0, "", "a", "10.0.0.1"), Claim(1, "", "b", "10.0.0.1")],  # b is an alias without address
        [Claim(0, "", "a", "10.0.0.1", "one"), Claim(0, "", "a", "10.7.0.1", "one")],  # the agent connected again
        [Claim(0, "", "a", "10.0.0.1", "one"), Claim(0, "", "a", "", "one", 0)],  # and then wrote to standard output
        [Claim(0, "", "a", attested=0), Claim(1, "", "b", attested=1)],
    ],
)
def test_claims_that_do_not_conflict(steps: list[Claim | tuple[str, frozenset[str]]]) -> None:
    """Hosts may have several networks and names, and agents may connect twice."""
    assert conflicts(*steps) == {}


def test_name_resolution_does_not_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are resolved in background threads: an unknown name and one that never resolves do not delay others."""
    found: list[tuple[str, frozenset[str]]] = []

    def getaddrinfo(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if name == "hangs":
            threading.Event().wait()
        if name == "unknown":
            raise socket.gaierror
        return [(0, 0, 0, "", ("10.0.0.1", 0)), (0, 0, 0, "", ("fe80::1%eth0", 0, 0, 1))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        resolved = asyncio.Event()

        def add(host: str, addresses: frozenset[str]) -> None:
            found.append((host, addresses))
            resolved.set()

        book = AddressBook([Host(name) for name in ("hangs", "unknown", "a")], add)
        book.resolve()
        await asyncio.wait_for(resolved.wait(), SECONDS)
        assert book.owners("10.0.0.1") == ["a"]

    asyncio.run(main())
    assert found == [("a", frozenset({"10.0.0.1", "fe80::1"}))]


def encode_lines(tag: str, key: str | None, kind: bytes, seq: int, payload: bytes) -> bytes:
    """Encode a frame as lines with this tag, authenticated with this key."""
    code = line_code(TOKEN.encode(), key.encode()) if key else None
    return text(tag, code)(kind, seq, 1, 1, payload)


FIRST, SECOND, RIVAL = "0-00000000000000aa", "1-00000000000000bb", "1-00000000000000cc"
GREETINGS = {
    FIRST: encode_lines(FIRST, FIRST, b"H", 0, b"rank=0\nhostname=a\n"),
    SECOND: encode_lines(SECOND, SECOND, b"H", 0, b"rank=1\nhostname=b\n"),
    RIVAL: encode_lines(RIVAL, RIVAL, b"H", 0, b"rank=1\nhostname=b\n"),
}
LABELS = {
    "slurm": (Slurm().label(), " {}: "),
    "Open MPI 4": (OPEN_MPI_LABEL, "[49159,{}]<stdout>:"),
    "Open MPI 5": (OPEN_MPI_LABEL, "[1,{}]<stderr>: "),
    "Hydra": (HYDRA_LABEL, "[{}] "),
}


def conflicts_of_lines(label: re.Pattern[bytes] | None, *lines: bytes) -> dict[str, str]:
    """The conflicts of hosts a and b when a launcher prints these lines."""

    async def main() -> dict[str, str]:
        launch = Launch("sh", [Host("a"), Host("b")], b"", label)
        launch.token = TOKEN
        launch.channels = {name: asyncio.get_running_loop().create_future() for name in "ab"}
        launch._stdout = SharedOutput(TOKEN, launch._announced, label)
        for line in lines:
            launch._stdout.feed(line)
        assert len(launch.arrived) + len(launch.conflicts) >= 2
        return launch.conflicts

    return asyncio.run(main())


def test_a_host_that_writes_lines_for_another() -> None:
    """It has the token, but not the other agent's secret: in any order, its lines count as those of a second agent."""
    reason = "conflicting claims: two agents claim to be b"
    for order in ([FIRST, SECOND, RIVAL], [RIVAL, FIRST, SECOND]):
        assert conflicts_of_lines(None, *(GREETINGS[tag] for tag in order)) == {"b": reason}
    assert conflicts_of_lines(None, GREETINGS[FIRST], GREETINGS[SECOND], GREETINGS[SECOND]) == {}


@pytest.mark.parametrize("launcher", LABELS)
def test_a_label_shows_which_process_wrote_a_line(launcher: str) -> None:
    """A host that writes lines for another rank is identified by its own rank, and both hosts fail."""
    pattern, form = LABELS[launcher]
    first, second = (form.format(rank).encode() for rank in range(2))
    reason = f"conflicting claims: {FALSE_RANK}"
    forged = [first + GREETINGS[FIRST], first + GREETINGS[RIVAL]]
    assert conflicts_of_lines(pattern, *forged) == {"a": reason, "b": reason}
    assert conflicts_of_lines(pattern, *reversed(forged)) == {"a": reason, "b": reason}
    assert conflicts_of_lines(pattern, first + GREETINGS[FIRST], second + GREETINGS[SECOND]) == {}
    nameless = encode_lines(RIVAL, RIVAL, b"H", 0, b"hostname=b\n")
    assert conflicts_of_lines(pattern, first + GREETINGS[FIRST], first + nameless).keys() == {"a", "b"}
    for unlabelled in (first + b"x" + GREETINGS[RIVAL], GREETINGS[RIVAL]):
        # Dropped even as the first line: it could hide the label of its process.
        assert conflicts_of_lines(pattern, unlabelled, first + GREETINGS[FIRST], second + GREETINGS[SECOND]) == {}


def test_labels_are_removed_from_messages() -> None:
    """The output of a process, used as the reason of a failure, has no launcher label."""
    output = SharedOutput(TOKEN, lambda _: lambda _: None, HYDRA_LABEL)
    output.feed(b"[1] python3: not found\n[mpiexec] done\n")
    assert output.other == "python3: not found\n[mpiexec] done\n"


def test_forged_lines() -> None:
    """Any program can write to the launcher's output: only frames authenticated by their agent are accepted."""
    received: dict[str, bytearray] = {}

    def announce(claim: Claim) -> Callable[[bytes], None]:
        return received.setdefault(claim.hostname, bytearray()).extend

    output = SharedOutput(TOKEN, announce)
    output.feed(encode_lines(FIRST, None, b"H", 0, b"rank=0\nhostname=forged\n"))  # with a checksum
    output.feed(encode_lines(FIRST, SECOND, b"H", 0, b"rank=0\nhostname=forged\n"))  # with the key of another tag
    output.feed(encode_lines(SECOND, SECOND, b"H", 0, b"rank=0\nhostname=forged\n"))  # of another rank
    output.feed(encode_lines("0", "0", b"H", 0, b"rank=0\nhostname=forged\n"))  # without a secret
    output.feed(binary(b"H", 0, 1, 1, b"rank=0\nhostname=forged\n"))
    assert received == {}
    output.feed(encode_lines(FIRST, FIRST, b"H", 0, b"rank=0\nhostname=true\n"))
    genuine = encode_lines(FIRST, FIRST, b"S", 1, b"true")
    output.feed(encode_lines(FIRST, None, b"S", 1, b"forged"))
    output.feed(genuine.replace(b" 1 1 m", b" 1 2 m"))  # another clock
    output.feed(genuine + genuine)
    frames = Decoder().feed(bytes(received.pop("true")))
    assert [(frame.kind, frame.seq, frame.wall, frame.payload[-4:]) for frame in frames] == [
        ("H", 0, 1, b"rue\n"),
        ("S", 1, 1, b"true"),
    ]
    assert received == {}


def test_endless_output_does_not_block_other_tasks() -> None:
    """If a host never stops writing to the launcher's output, other tasks run between two reads."""
    turns = list[str]()

    class Endless:
        async def read(self) -> bytes:
            turns.append("read")
            return b"noise\n" if len(turns) < 100 else b""

    async def other() -> None:
        while len(turns) < 100:
            turns.append("other")
            await asyncio.sleep(0)

    async def main() -> None:
        launch = await launch_of("a")
        await asyncio.gather(launch._read(cast("Pipe", Endless())), other())

    asyncio.run(main())
    assert turns[:4] == ["read", "other"] * 2


def test_buffered_lines_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that sends without limit before it is read is disconnected, and others are not affected."""
    monkeypatch.setattr("rollbook.transports.launch.MAX_WAITING", 1000)

    async def main() -> None:
        channels = [AgentChannel(await launch_of(name), Host(name), Claim(0, "", name)) for name in "ab"]
        for channel in channels:
            for _ in range(5):
                channel.feed(bytes(500))
                if channel is channels[1]:
                    assert len(await channel.read()) == 500
        with pytest.raises(AgentFailed, match="MiB before its lines can be read"):
            await channels[0].read()
        assert len(channels[0].reader._buffer) <= 1000  # type: ignore[attr-defined]

    asyncio.run(main())


def test_agents_per_rank_are_limited() -> None:
    """A host that announces many agents with the token is limited to a few per rank; other ranks are accepted."""
    announced = Counter[int | None]()

    def announce(claim: Claim) -> Callable[[bytes], None]:
        announced[claim.attested] += 1
        return lambda _: None

    output = SharedOutput(TOKEN, announce, HYDRA_LABEL)
    for number in range(1000):
        tag = f"0-{number:016x}"
        output.feed(b"[0] " + encode_lines(tag, tag, b"H", 0, b"rank=0\nhostname=a\n"))
    output.feed(b"[1] " + GREETINGS[SECOND])
    assert announced == {0: MAX_OF_RANK, 1: 1}
    assert len(output._streams) == MAX_OF_RANK + 1


@pytest.mark.parametrize(("address", "others"), [("127.0.0.1", False), (None, True), ("192.0.2.1", True)])
def test_listening_addresses(address: str | None, others: bool) -> None:
    """The collector listens on the given address if this machine has it, otherwise on all addresses."""

    async def main() -> bool:
        listener = Listener(TOKEN, lambda _: None)
        await listener.open(address)
        try:
            _, writer = await asyncio.open_connection("127.0.0.9", listener.port)
            writer.close()
        except ConnectionRefusedError:
            return False
        finally:
            listener.close()
        return True

    assert asyncio.run(main()) == others
