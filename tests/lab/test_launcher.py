"""Code shared by all launcher transports: connections, lines on one output, and the host of each agent."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import os
import select
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.agent.secure import Seal, line_code
from rollbook.agent.wire import slurp, text
from rollbook.collect.recorder import Recorder
from rollbook.collect.session import Session
from rollbook.errors import AgentFailed
from rollbook.hosts import Host
from rollbook.protocol.frames import Decoder
from rollbook.testing import conformance
from rollbook.testing.lab.processes import living
from rollbook.transports import launch, listener
from rollbook.transports.base import Transport
from rollbook.transports.claims import Claim
from rollbook.transports.launcher import Launcher
from rollbook.transports.launcher_output import first_message, message_about
from rollbook.transports.listener import Connection
from rollbook.transports.local import Local
from rollbook.transports.mpi import Mpi
from rollbook.transports.pipe import Pipe
from rollbook.transports.program import run_program
from rollbook.transports.shared_output import SharedOutput
from tests.support.agents import set_connect
from tests.support.launchers import AGENT, INTERVAL, LONGEST_GAP, PLAN, kill_children, record, snapshot, stable_facts
from tests.support.waits import SECONDS, is_running, until, until_true

if TYPE_CHECKING:
    from rollbook.agent.wire import Carrier

BOOT = slurp("/proc/sys/kernel/random/boot_id")
MARK = f"TOGETHER={os.getpid()}"  # in the environment of all processes that these tests start
NOISE = 'echo "WARNING: no fabric found"; printf "%s" "half a line without an end"'


class Together(Launcher):
    """A minimal launcher: a shell that starts an agent for each host and passes on their output."""

    name = "together"
    program = "sh"

    def __init__(self, before: str = ":", each: str = "", **options: object) -> None:
        super().__init__(**{"timeout": 3 * SECONDS, **options})  # type: ignore[arg-type]
        self._before, self._each = before, each

    async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
        """Start one rank per host in this order; the shell ends with its agents, and they end with it."""
        ranks = " ".join(str(rank) for rank in range(len(hosts)))
        trap = "trap 'kill $pids 2>/dev/null' TERM; trap 'kill -USR1 $pids' USR1"
        loop = f'for r in {ranks}; do {self._each} TOGETHER_RANK=$r "$@" & pids="$pids $!"; done'
        return ["sh", "-c", f"{trap}; {self._before}; {loop}; while wait; [ $? -gt 128 ]; do :; done", "sh", *program]

    def variables(self) -> tuple[str, str]:
        """The variables with rank and node name."""
        return "TOGETHER_RANK", "TOGETHER_NODE"


def until_no_agent() -> None:
    """Wait until no agent that was started by these tests runs."""
    until(lambda: not [1 for one in living() if one.has_environment(MARK) and AGENT in one.cmdline])


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mark the processes that are started here, to distinguish them from others."""
    monkeypatch.setenv(*MARK.split("="))


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents connect even if the machine is so busy that they would give up and send lines."""
    set_connect(monkeypatch, SECONDS)


@pytest.mark.parametrize("back", [None, "127.0.0.1", "none"])
def test_snapshot_through_a_launcher(back: str | None) -> None:
    """By connection or by lines, each host has an agent and is complete; it has a clock if orders can be sent."""
    results = snapshot(Together(connect_back=back), ["a", "b", "c"])
    assert [result.status for result in results.values()] == ["complete"] * 3, results
    assert [result.clock is None for result in results.values()] == [back == "none"] * 3
    assert {result.method for result in results.values()} == {"together"}
    facts = [stable_facts(result.facts) for result in results.values()]
    assert facts[0] == facts[1] == facts[2]
    until_no_agent()


@pytest.mark.parametrize("back", [None, "none"])
def test_recording_through_a_launcher(back: str | None) -> None:
    """No beat is lost and all hosts have start and end facts, even if agents cannot receive orders."""
    hosts = record(Together(connect_back=back), ["a", "b"], 3, plan=PLAN)
    for host in hosts.values():
        assert len(host.beats) >= 3
        assert host.gaps() == 0
        assert host.facts == {"start": 1, "end": 1}
        assert host.goodbye
        assert not host.lost
    until_no_agent()


def test_noise_of_the_launcher_is_ignored() -> None:
    """Other output of the launcher is ignored, even if it does not end with a newline."""
    noisy = f"{NOISE}; (for n in $(seq 500); do {NOISE}; sleep 0.002; done) & true"
    results = snapshot(Together(before=noisy, connect_back="none"), ["a", "b", "c"])
    # Writing a line of an agent to a pipe is atomic: noise comes before it, never inside.
    assert {(found.status, found.reason) for found in results.values()} == {("complete", "")}
    until_no_agent()


def test_agent_cannot_start() -> None:
    """The launcher's message is the reason of the host that it names; the other hosts are complete."""
    one = 'if [ $r = 1 ]; then echo "sh: error: b: no such interpreter" >&2; continue; fi;'
    results = snapshot(Together(each=one), ["a", "b", "c"])
    assert [result.status for result in results.values()] == ["complete", "failed", "complete"]
    assert results["b"].reason.startswith("sh: error: b: no such interpreter")
    until_no_agent()


def test_launcher_fails() -> None:
    """Every host fails at once with the reason, and the launcher is not restarted for each of them."""
    began = time.monotonic()
    failing = Together(before='echo "quota exceeded" >&2; exit 3', timeout=3 * SECONDS)  # two thirds to launch
    results = snapshot(failing, [f"h{n}" for n in range(100)])
    assert {(r.status, r.reason) for r in results.values()} == {
        ("failed", "sh started no agent on the host: quota exceeded")
    }
    assert time.monotonic() - began < SECONDS


def test_fallback() -> None:
    """Hosts that returned no data through the launcher are read by the fallback and record what failed before."""
    refusing = Together(before="echo no licence >&2; exit 1")
    results = snapshot(refusing, ["a", "b"], fallback=lambda _: Local())
    for found in results.values():
        assert found.status == "complete"
        assert found.attempts == ["together: sh started no agent on the host: no licence"]


def test_launcher_is_killed() -> None:
    """Agents end with their launcher; a recording restarts it and has the samples before and after."""
    hosts = record(Together(), ["a", "b"], 4, lambda: kill_children("sh"), returning=["a", "b"])
    for host in hosts.values():
        assert host.lost[0] == "the agent is gone: sh ended with code -9"
        assert host.gaps() * INTERVAL <= LONGEST_GAP
        assert host.facts.keys() == {"start", "end"}  # the first agent may have sent start facts, too
    until_no_agent()


def test_token_is_not_in_command_lines() -> None:
    """The token is passed in the environment, which other users cannot read."""

    async def main() -> None:
        transport = Together()
        try:
            async with Session(Host("a"), transport, PLAN) as session:
                await session.greet()
                assert transport._launch is not None
                token = transport._launch.token
                running = list(living())
                assert any(AGENT in one.cmdline and one.has_environment(MARK) for one in running)
                assert not any(token in one.cmdline for one in running)
        finally:
            await transport.close()

    asyncio.run(main())


def talk_to(port: int, *lines: bytes) -> bytes:
    """Connect without the token, send lines, and return everything that is received."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        answer = b""
        with contextlib.suppress(OSError):  # the listener may have closed the connection
            for line in lines:
                connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            while piece := connection.recv(4096):
                answer += piece
        return answer


def test_local_agent_connects_over_loopback() -> None:
    """A local agent does not use other addresses of the machine, which may disappear with their interface."""
    reached: list[str] = []

    async def main() -> None:
        def welcome(connection: Connection) -> None:
            reached.append(connection.writer.get_extra_info("sockname")[0])
            connection.writer.transport.abort()

        open_port = listener.Listener("the token", welcome)
        await open_port.open()
        from rollbook import agent

        argv = agent.launched_argv(None, f"{open_port.port}/TOGETHER_RANK/X/2/{BOOT}/127.0.0.2,127.0.0.3", b"stop\n")
        started = await asyncio.create_subprocess_exec(*argv, env={**os.environ, "ROLLBOOK_TOKEN": "the token"})
        await asyncio.wait_for(started.wait(), SECONDS)
        open_port.close()

    asyncio.run(main())
    assert [address.removeprefix("::ffff:") for address in reached] == ["127.0.0.1"]


def test_unauthenticated_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections without a valid token get no answer, and many silent ones do not keep agents from connecting."""
    monkeypatch.setattr(listener, "UNPROVEN", 20)
    claims, first = [], []

    async def main() -> None:
        async def greeting(connection: Connection) -> bytes:
            try:
                while not (data := connection.receive.open(await connection.reader.read(4096))):
                    pass
                return data[:4]
            finally:
                connection.writer.transport.abort()

        def welcome(connection: Connection) -> None:
            claims.append(connection.claim)
            first.append(asyncio.create_task(greeting(connection)))

        open_port = listener.Listener("the token", welcome)
        await open_port.open()
        silent = [socket.create_connection(("127.0.0.1", open_port.port)) for _ in range(100)]
        wrong = b"rollbook 0 - vm %s %s\n" % (b"0" * 32, b"f" * 64)
        for lines in (
            (b"",),
            (wrong,),
            (b"GET / HTTP/1.1\r\n\r\n",),
            (b"\xff" * 100_000,),
            (b"rollbook\n",),
            (wrong, wrong),
        ):
            answer = await asyncio.to_thread(talk_to, open_port.port, *lines)
            assert len(answer.strip()) in (0, 32), answer  # at most the challenge
        environ = {**os.environ, "ROLLBOOK_TOKEN": "the token", "TOGETHER_RANK": "7"}
        from rollbook import agent

        for token in ("another", "the token"):
            with monkeypatch.context() as patch:
                if token == "another":  # the agent retries until it gives up
                    set_connect(patch, 2.0)
                argv = agent.launched_argv(None, f"{open_port.port}/TOGETHER_RANK/X/2/{BOOT}/127.0.0.1", b"stop\n")
            started = await asyncio.create_subprocess_exec(
                *argv, env={**environ, "ROLLBOOK_TOKEN": token}, stdout=asyncio.subprocess.DEVNULL
            )
            await asyncio.wait_for(started.wait(), SECONDS)
        open_port.close()
        for one in silent:
            one.close()
        assert [await greeting for greeting in first] == [b"\xffRB1"]

    asyncio.run(main())
    assert [claim[:2] for claim in claims] == [(7, "")]


@pytest.mark.parametrize("iterations", range(6))
def test_listener_is_closed_while_clients_connect(iterations: int) -> None:
    """After any number of event loop iterations, the listener closes all connections, not the garbage collector."""
    connections: list[socket.socket] = []

    async def main() -> None:
        open_port = listener.Listener("the token", lambda *_: None)
        await open_port.open()
        connections.extend(socket.create_connection(("127.0.0.1", open_port.port)) for _ in range(3))
        for _ in range(iterations):
            await asyncio.sleep(0)
        open_port.close()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(warning.message) for warning in caught] == []
    for connection in connections:
        with connection, contextlib.suppress(ConnectionResetError):
            assert not connection.recv(100).strip(b"0123456789abcdef\n"), "more than a challenge was sent"
            assert connection.recv(100) == b""


def test_agent_disconnects_before_its_channel_is_opened() -> None:
    """The connection of an agent that disconnected before its channel was opened is closed with the launch."""

    async def main() -> None:
        running = launch.Launch("sh", [Host("a")], b"")
        running.channels = {"a": asyncio.get_running_loop().create_future()}
        leader_exists, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=leader_exists)
        running._connected(Connection(Claim(0, "", "a"), reader, writer, Seal(b"1"), Seal(b"2")))
        theirs.close()
        assert await reader.read() == b""
        await running.close()
        assert writer.transport.is_closing()

    asyncio.run(main())


def test_connection_is_accepted_when_descriptors_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that cannot be accepted for lack of file descriptors is accepted later."""
    monkeypatch.setattr(listener, "NO_ROOM", 0.05)
    accept, refused = socket.socket.accept, 2

    def accept_or_fail(self: socket.socket) -> object:
        nonlocal refused
        if refused:
            refused -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(self)

    async def main() -> bytes:
        open_port = listener.Listener("the token", lambda *_: None)
        await open_port.open()
        monkeypatch.setattr(socket.socket, "accept", accept_or_fail)
        reader, writer = await asyncio.open_connection("127.0.0.1", open_port.port)
        try:
            return await asyncio.wait_for(reader.readline(), SECONDS)
        finally:
            writer.close()
            open_port.close()

    assert len(asyncio.run(main()).strip()) == 32
    assert not refused


def test_agent_rejects_orders_without_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent disconnects from a program at the collector's address that does not have the token."""
    set_connect(monkeypatch, 2.0)
    received: list[bytes] = []

    async def impostor(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"0" * 32 + b"\n" + b"f" * 64 + b"\nsource\t0\t0\t9\t9\nrun\ttouch\t/owned\ngo\tnow\n")
        with contextlib.suppress(ConnectionError):
            received.append(await reader.readline())
            received.append(await reader.read())
        writer.close()

    async def main() -> bytes:
        from rollbook import agent

        server = await asyncio.start_server(impostor, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        started = await asyncio.create_subprocess_exec(
            *agent.launched_argv(None, f"{port}/X/Y/2/{BOOT}/127.0.0.1", b"stop\n"),
            env={**os.environ, "ROLLBOOK_TOKEN": "the token", "X": "7"},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await asyncio.wait_for(started.communicate(), SECONDS)
        server.close()
        return out

    out = asyncio.run(main())
    assert b"the token" not in b"".join(received)
    assert {frame.kind for frame in Decoder(line_code(b"the token", out.split()[1])).feed(out)} == {"H", "E"}
    assert not Path("/owned").exists()


@pytest.mark.parametrize(
    "check",
    [check for check in conformance.CHECKS if check is not conformance.keeps_channels_apart],
    ids=lambda check: check.__name__,
)
def test_conformance(check: conformance.Check) -> None:
    """A launcher passes the conformance checks, except for several channels: it starts one agent per host."""

    async def main() -> None:
        transport = Together()
        try:
            await check(transport, Host("a"))
        finally:
            await transport.close()

    asyncio.run(main())
    until_no_agent()


def test_read_is_cancelled_as_data_arrives() -> None:
    """If both happen in one iteration of the event loop, the program is still ended, and no exception is logged."""
    raised: list[dict[str, object]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        pipe = Pipe(["cat"])
        reading = asyncio.create_task(pipe.read())
        await asyncio.sleep(0.1)
        await pipe.write(b"late")
        # The data must arrive in the iteration of the cancellation.
        assert select.select([pipe._out], [], [], SECONDS)[0]
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading])
        assert (await pipe.close(SECONDS)).code == 0

    asyncio.run(main())
    assert not raised


def test_concurrent_writes() -> None:
    """Writes larger than the pipe to a slow reader arrive one after the other, and none waits forever."""

    async def main() -> bytes:
        pipe = Pipe(["sh", "-c", "sleep 0.2; exec cat"])
        writing = [asyncio.create_task(pipe.write(word * 200_000)) for word in (b"a", b"b")]
        await asyncio.sleep(0.1)
        writing.append(asyncio.create_task(pipe.write(b"c")))
        received = b""
        async with asyncio.timeout(SECONDS):
            while not received.endswith(b"c"):
                received += await pipe.read()
            await asyncio.gather(*writing)
        await pipe.close()
        return received

    assert asyncio.run(main()) == b"a" * 200_000 + b"b" * 200_000 + b"c"


def test_large_buffers() -> None:
    """A launcher can write its last output and end before anyone reads it: Open MPI drops what it cannot write."""

    async def main() -> None:
        pipe = Pipe(["sh", "-c", "head -c 900k /dev/zero; head -c 900k /dev/zero >&2; exit 4"], large_buffers=True)
        until(lambda: pipe.code == 4)  # the event loop does not run meanwhile
        await pipe.close()

    asyncio.run(main())


STUBBORN = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(end='.', flush=True)\ntime.sleep(600)"


@pytest.mark.parametrize("method", [Pipe.close, Pipe.read])
def test_cancelled_call_leaves_no_program(method: Callable[[Pipe], Coroutine[None, None, object]]) -> None:
    """Cancelling `close` between SIGTERM and SIGKILL, or `run_program`, leaves no process; closing twice is allowed."""
    sleeping = f"sleep 610.{os.getpid():07}"

    async def main() -> None:
        pipe = Pipe([sys.executable, "-c", STUBBORN])
        assert await pipe.read() == b"."
        cancelled = asyncio.create_task(method(pipe))
        await asyncio.sleep(0.2)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        assert pipe.code == (-signal.SIGKILL if method is Pipe.close else None)
        assert (await pipe.close()).code == (await pipe.close()).code == -signal.SIGKILL
        program = asyncio.create_task(run_program(["sh", "-c", f"exec {sleeping}"], 600))
        await until_true(lambda: is_running(sleeping))
        program.cancel()
        await asyncio.wait([program])
        assert not is_running(sleeping)

    asyncio.run(main())


def test_children_of_an_ended_program_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are killed while the process group still belongs to the program, and never later."""
    leader_exists: list[bool] = []
    real = os.killpg

    def killpg(group: int, number: int) -> None:
        leader_exists.append(Path(f"/proc/{group}").exists())
        real(group, number)

    async def main() -> None:
        pipe = Pipe(["sh", "-c", "sleep 630 & exit 3"])
        await pipe.wait(SECONDS)
        assert pipe.code == 3
        monkeypatch.setattr(os, "killpg", killpg)
        assert (await pipe.close()).code == (await pipe.close()).code == pipe.code == 3
        pipe.signal(signal.SIGTERM)

    asyncio.run(main())
    assert leader_exists == [True]
    until(lambda: not [1 for one in living() if one.has_environment(MARK) and "sleep 630" in one.cmdline])


def test_program_cannot_be_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` returns after a moment if a program is stuck in the kernel or belongs to another user."""
    monkeypatch.setattr(Pipe, "_kill", lambda *_: None)

    async def main() -> int:
        pipe = Pipe(["sh", "-c", "exec sleep 620"])
        began = time.monotonic()
        ending = await pipe.close()
        assert 1.5 < time.monotonic() - began < SECONDS
        pipe.signal(signal.SIGKILL)
        await pipe.wait(SECONDS)
        assert pipe.code == -signal.SIGKILL
        return ending.code

    assert asyncio.run(main()) == -signal.SIGKILL


def carrier(rank: int) -> Carrier:
    """The encoder that writes the frames of an agent with this rank as lines."""
    tag = f"{rank}-{rank:016x}"
    return text(tag, line_code(b"token", tag.encode()))


FRAME = st.tuples(st.sampled_from("RSZ"), st.binary(max_size=3000))


@given(
    st.lists(st.lists(FRAME, max_size=4), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1500)), max_size=40),
    st.lists(st.binary(max_size=30), max_size=3),
)
def test_truncated_and_mixed_lines(
    sent: list[list[tuple[str, bytes]]], cuts: list[tuple[int, int]], noise: list[bytes]
) -> None:
    """However the lines of agents are truncated and mixed with noise, each decoded frame is one that its agent sent."""
    streams = []
    for tag, frames in enumerate(sent):
        carry = carrier(tag)
        hello = carry(b"H", 0, 1, 2, f"rank={tag}\nhostname=h{tag}\nnode=-\n".encode())
        lines = [carry(kind.encode(), seq, seq, seq, data) for seq, (kind, data) in enumerate(frames, 1)]
        streams.append(bytearray(hello + b"".join(lines)))
    out: dict[int, Decoder] = {}
    got: dict[int, list[tuple[str, bytes]]] = {}

    def announce(claim: Claim) -> Callable[[bytes], None]:
        assert claim.rank is not None
        tag = claim.rank
        out[tag], got[tag] = Decoder(), []

        def take(lines: bytes) -> None:
            got[tag] += [(f.kind, f.payload) for f in out[tag].feed(lines) if f.kind != "H"]

        return take

    merged = SharedOutput("token", announce)
    whole = not cuts and not noise
    for (which, size), extra in zip(cuts, [*noise, *[b""] * 40], strict=False):
        stream = streams[which % len(streams)]
        merged.feed(bytes(stream[:size]) + extra)
        del stream[:size]
    for stream in streams:
        merged.feed(bytes(stream))
    for tag, frames in enumerate(sent):
        if whole:
            assert got[tag] == frames
        left = list(frames)
        for frame in got.get(tag, []):
            assert frame in left
            del left[: left.index(frame) + 1]


def test_invalid_ranks_and_missing_hellos(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank with hundreds of digits is ignored, and the data kept of agents without a hello is limited."""
    monkeypatch.setattr("rollbook.transports.shared_output.MAX_KEPT", 100_000)
    claims: list[Claim] = []

    def taker(who: Claim) -> Callable[[bytes], None]:
        claims.append(who)
        return lambda _: None

    merged = SharedOutput("token", taker)
    for tag, rank in ((1, b"9" * 200), (2, b"9" * 5000), (3, b"3")):
        carry = carrier(tag)
        merged.feed(carry(b"H", 0, 1, 1, b"rank=%s\nnode=n%d\n" % (rank, tag)))
    assert [(who.rank, who.node) for who in claims] == [(None, "n1"), (None, "n2"), (3, "n3")]
    for tag in range(10, 1000):
        merged.feed(b"@rb1 %d-%016x 0 %s\n" % (tag, tag, b"x" * 900))
    kept = sum(stream.received for stream in merged._early.values())
    assert len(merged._streams) == 3 + len(merged._early)
    assert 50_000 < kept == merged._kept <= 100_000


def test_lines_after_the_end() -> None:
    """Lines that arrive after the launcher has ended are ignored without an error."""

    async def main() -> None:
        running = launch.Launch("sh", [Host("a")], b"")
        running.channels = {"a": asyncio.get_running_loop().create_future()}
        channel = running._assign(Claim(0, "", "a"))
        assert channel is not None
        running._finish()
        channel.feed(b"@rb1 0 0 late\n")
        assert await channel.read() == b""

    asyncio.run(main())


def test_failed_launch_is_retried_later() -> None:
    """The launch is retried after a while, not for each host; a host outside the launch has that as its reason."""
    tries = 0

    class Failing(Together):
        async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
            nonlocal tries
            tries += 1
            return await super().argv(hosts, program) if tries > 1 else ["/no/such/program"]

    async def main() -> None:
        transport = Failing()
        transport.expect([Host("a"), Host("b")], b"")
        for name in ("a", "b"):
            with pytest.raises(AgentFailed, match="cannot run"):
                await transport.open(Host(name))
        assert tries == 1
        transport._retry_at = 0.0
        try:
            await transport.open(Host("a"))
            with pytest.raises(AgentFailed, match="for other hosts"):
                await transport.open(Host("c"))
        finally:
            await transport.close()

    asyncio.run(main())
    until_no_agent()


MESSAGES = """\
srun: error: node03: task 2: Killed
srun: error: n[10-12,14]: tasks 9-12: Exited with exit code 127
--------------------------------------------------------------------------
ORTE was unable to reliably start one or more daemons
since the host is down.
"""


@pytest.mark.parametrize(
    ("host", "rank", "line"),
    [
        ("node03", None, "srun: error: node03: task 2: Killed"),
        ("node0", None, ""),
        ("n12", None, "srun: error: n[10-12,14]: tasks 9-12: Exited with exit code 127"),
        ("n13", None, ""),
        ("x", 2, "srun: error: node03: task 2: Killed"),
    ],
)
def test_message_about_a_host(host: str, rank: int | None, line: str) -> None:
    """A line is about a host if it has its full name, alone or in a folded list, or its rank."""
    assert message_about(MESSAGES, host, rank) == line


def test_first_message() -> None:
    """The first sentence is returned without decoration and line breaks."""
    box = MESSAGES.partition("127\n")[2]
    assert first_message(box) == "ORTE was unable to reliably start one or more daemons since the host is down."
    assert first_message("---\n***\n") == ""


RACE = "[vm:139] plm:ssh: Warning: setpgid(14,14) failed in parent with errno=Permission denied(13)\n"
REFUSED = "ssh: connect to host 10.0.0.2 port 22: Connection refused\n"


@pytest.mark.parametrize(
    ("messages", "statuses"),
    [
        (f"{RACE}/usr/bin/env: 'python3': No such file or directory\n", ["failed"] * 3),
        (f"{REFUSED}A daemon failed to report back:\n  Remote host:   b\n", ["failed", "refused", "failed"]),
        ("ssh: connect to host b port 22: No route to host\n", ["failed", "unreachable", "failed"]),
        ("[b:7] PMIX ERROR: BAD-PARAM in file event.c at line 1033\n", ["failed"] * 3),
        (REFUSED, ["failed"] * 3),  # the address does not tell which host it is
    ],
)
def test_messages_of_mpi_launchers(messages: str, statuses: list[str]) -> None:
    """A message about a host decides its status; messages about others and warnings only make it failed."""
    transport = Mpi()
    transport.expect([Host(name) for name in "abc"], b"")
    assert [transport._missing(Host(name), messages, 1).status for name in "abc"] == statuses


def test_host_that_breaks_the_launch_is_excluded() -> None:
    """If the launcher names a host and gives up, it is restarted without this host."""
    refuse_b = """case $ROLLBOOK_TRY in *b*) echo "sh: error: b: cannot be reached" >&2; exit 1;; esac"""
    tried: list[list[str]] = []

    class Fussy(Together):
        async def argv(self, hosts: Sequence[Host], program: Sequence[str]) -> list[str]:
            tried.append([host.name for host in hosts])
            return ["env", f"ROLLBOOK_TRY={' '.join(tried[-1])}", *await super().argv(hosts, program)]

    results = snapshot(Fussy(before=refuse_b), ["a", "b", "c"])
    assert [result.status for result in results.values()] == ["complete", "failed", "complete"]
    assert results["b"].reason == "sh: error: b: cannot be reached"
    assert tried == [["a", "b", "c"], ["a", "c"]]
    until_no_agent()


def test_recording_retries_a_failed_launch() -> None:
    """A recording retries the launch, and has samples of every host once it succeeds."""
    with tempfile.NamedTemporaryFile() as file:
        failing = Together(before=f"[ -s {file.name} ] || {{ echo 1 > {file.name}; exit 1; }}")
        hosts = record(failing, ["a", "b"], 0, returning=["a", "b"])
    for host in hosts.values():
        assert host.lost == ["sh started no agent on the host: it ended with code 1 and printed nothing"]
        assert len(host.beats) >= 3


def assign(names: Sequence[str], *agents: Claim) -> list[str | None]:
    """The hosts that agents are assigned to, in order of arrival."""

    async def main() -> list[str | None]:
        running = launch.Launch("x", [Host(name) for name in names], b"")
        running.channels = {name: asyncio.get_running_loop().create_future() for name in names}
        found = []
        for claim in agents:
            channel = running._assign(claim)
            found.append(channel.host.name if channel else None)
        return found

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("names", "agents", "hosts"),
    [
        (["n1", "n2"], [Claim(1, "n1", "vm"), Claim(0, "n2", "vm")], ["n1", "n2"]),
        (["n1", "n2"], [Claim(0, "n3", "vm")], [None]),
        (["a.site", "b.site"], [Claim(0, "", "b"), Claim(1, "", "a.site")], ["b.site", "a.site"]),
        (
            ["10.0.0.1", "10.0.0.2"],
            [Claim(0, "", "x", "10.0.0.2"), Claim(1, "", "y", "10.0.0.1")],
            ["10.0.0.2", "10.0.0.1"],
        ),
        (["alias1", "alias2"], [Claim(1, "", "real"), Claim(0, "", "real")], ["alias2", "alias1"]),
        (["a"], [Claim(0, "", "a"), Claim(0, "", "a")], ["a", None]),
        (["a"], [Claim(5, "", "b"), Claim(None, "", "c")], [None, None]),
    ],
)
def test_agents_are_assigned_to_hosts(names: list[str], agents: list[Claim], hosts: list[str | None]) -> None:
    """By the launcher's name of the node, the hostname, the address or the rank; never by guessing."""
    assert assign(names, *agents) == hosts


def test_recording_with_and_without_fallback(tmp_path: Path) -> None:
    """If a launcher starts no agent, data comes from the fallback, which each host records, or from the arguments."""
    from rollbook.api.finish import finish

    async def main(fallback: Callable[[Host], Transport] | None, raw: Path) -> None:
        about = {"type": "record", "stamp": "x", "argv": [], "args": {"client_host_memory_in_gb": 8}}
        refusing = Together(before="echo no licence >&2; exit 1")
        hosts = [Host("a"), Host("b")]
        options = {"interval": 1.0, "about": about, "timeout": 3 * SECONDS, "fallback": fallback}
        async with Recorder(raw, hosts, lambda _: refusing, PLAN, **options) as recorder:  # type: ignore[arg-type]
            await recorder.ready()
            await recorder.end(facts=True)

    reason = "together: sh started no agent on the host: no licence"
    asyncio.run(main(lambda _: Local(), tmp_path / "one" / "raw"))
    run = finish(tmp_path / "one", report=False)
    assert [(h.status, h.method, h.attempts) for h in run.hosts.start] == [("complete", "local", [reason])] * 2
    assert run.metadata["system_info"]["collection_method"] == "local"

    asyncio.run(main(None, tmp_path / "two" / "raw"))
    cluster = finish(tmp_path / "two", report=False).metadata["system_info"]
    assert cluster["collection_method"] == "args"
    assert [(h["memory"]["origin"], h["collection_method"], h["status"]) for h in cluster["hosts"]] == [
        ("declared", "args", "failed")
    ] * 2
    assert [host["name"] for host in cluster["missing_hosts"]] == ["a", "b"]
