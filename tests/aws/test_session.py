"""Sessions with the fake service and real commands: data is complete, or the session reports that it is not."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.protocol import State

from rollbook.aws.api import Account
from rollbook.aws.channel import Channel, Closed
from rollbook.aws.rate import StartRate
from rollbook.aws.session import Session
from rollbook.errors import AwsError, NoHostReached, Refused, Unreachable
from rollbook.testing.lab.processes import process
from tests.support.fake_aws import INTERACTIVE, NON_INTERACTIVE, FakeAws, Faults, Node, fake_aws
from tests.support.waits import until

NODE = Node("i-0123456789abcdef0")
TARGET = "sagemaker-cluster:abcdef123456_worker-i-0123456789abcdef0"


async def run(
    service: FakeAws, command: str, document: str = NON_INTERACTIVE, typed: bytes = b""
) -> tuple[bytes, Session]:
    """Run a command and return its output and its session."""
    account = Account(endpoint_url=service.endpoint)
    parameters = {"command": [command]}
    if document == NON_INTERACTIVE:
        parameters["separateOutputStream"] = ["true"]
    async with Session(account, TARGET, document, parameters, rate=StartRate(50)) as session:
        if typed:
            await session.write(typed)
        output = b""
        async with asyncio.timeout(60):
            while data := await session.read():
                output += data
    return output, session


def test_a_command() -> None:
    """Output, standard error and exit status come back separately; the session is closed at the service."""
    with fake_aws([NODE]) as service:
        output, session = asyncio.run(run(service, "sh -c 'echo out; echo err >&2; exit 7'"))
        assert (output, session.stderr, session.exit_code, session.error) == (b"out\n", b"err\n", 7, "")
        assert not service.sessions


@pytest.mark.parametrize(
    ("faults", "injected"),
    [
        (Faults(loss=0.1), ["lost"]),
        (Faults(duplication=0.3), ["duplicated"]),
        (Faults(reordering=0.3), ["reordered"]),
        (Faults(lateness=0.1), ["late"]),
        (
            Faults(loss=0.05, duplication=0.05, reordering=0.05, lateness=0.02),
            ["lost", "duplicated", "reordered", "late"],
        ),
        (Faults(dropped_sockets=2, drop_after=15), ["dropped"]),
        (Faults(dropped_sockets=1, drop_after=15, failing_resumes=2), ["dropped"]),
        (Faults(late_exit=0.5), []),
        (Faults(encrypted=True), []),
        (Faults(encrypted=True, loss=0.05, dropped_sockets=1), ["lost", "dropped"]),
    ],
    ids=[
        "loss",
        "duplication",
        "reordering",
        "lateness",
        "all of these",
        "dropped sockets",
        "failing resumes",
        "late exit",
        "KMS",
        "KMS and loss",
    ],
)
def test_faults_change_nothing(faults: Faults, injected: list[str]) -> None:
    """Lost, repeated, reordered and late messages and dropped sockets do not change what arrives."""
    with fake_aws([NODE], faults) as service:
        output, session = asyncio.run(run(service, "seq 1 20000"))
        expected = b"".join(b"%d\n" % number for number in range(1, 20001))
        assert hashlib.sha256(output).hexdigest() == hashlib.sha256(expected).hexdigest()
        assert (session.exit_code, session.error) == (0, "")
        assert not service.sessions
        assert all(service.injected[name] for name in injected)


def test_a_session_that_cannot_be_resumed() -> None:
    """The data is incomplete, and the session reports the reason."""
    with fake_aws([NODE], Faults(dropped_sockets=1, drop_after=5, empty_resume=True)) as service:
        output, session = asyncio.run(run(service, "seq 1 20000"))
        assert session.exit_code is None
        assert "cannot be resumed" in session.error
        assert len(output) < 100_000


def test_a_node_that_closes_too_early() -> None:
    """The real agent drops output that is not acknowledged in time: the session has a reason and no exit status."""
    with fake_aws([NODE], Faults(loss=0.3, close_seconds=0.1)) as service:
        output, session = asyncio.run(run(service, "seq 1 20000"))
        assert len(output) < 100_000
        assert (session.exit_code, session.error) == (
            None,
            "the session ended before the command's exit status arrived",
        )


@pytest.mark.parametrize(("message", "error"), [("", ""), (" \n", ""), ("first\nlast\n", "last")])
def test_closing_messages(message: str, error: str) -> None:
    """The last line of the message is the reason; a blank message has no reason."""
    session = Session(Account(), TARGET)
    asyncio.run(session._take(Closed(message)))
    assert session.error == error


def test_throttling() -> None:
    """Throttled and failing starts and throttled ends are retried and are not errors."""
    with fake_aws([NODE], Faults(throttled_starts=3, failing_starts=2, throttled_ends=1)) as service:
        output, session = asyncio.run(run(service, "echo x"))
        assert (output, session.exit_code, service.starts) == (b"x\n", 0, 1)
        assert not service.sessions


@pytest.mark.parametrize(
    "faults",
    [Faults(), Faults(encrypted=True), Faults(encrypted=True, loss=0.2)],
    ids=["", "KMS", "KMS and loss"],
)
def test_an_interactive_command(faults: Faults) -> None:
    """Input reaches the command through its terminal; in an encrypted session, only after the handshake."""
    typed = bytes(range(32, 127)) * 40
    with fake_aws([NODE], faults) as service:
        command = f"stty raw -echo; echo ready; head -c {len(typed)}"
        output, _ = asyncio.run(run(service, command, INTERACTIVE, typed))
        assert output.endswith(b"ready\n" + typed)


def test_incomplete_utf8_character() -> None:
    """The real agent drops incomplete UTF-8 at the end of the output, so exact data needs another encoding."""
    with fake_aws([NODE]) as service:
        output, session = asyncio.run(run(service, r"printf 'abc\303'"))
        assert (output, session.exit_code) == (b"abc", 0)
        assert service.printed[NODE.instance] == b"abc\xc3"


@pytest.mark.parametrize(
    ("faults", "target", "error", "text"),
    [
        (Faults(refused_documents=(NON_INTERACTIVE,)), TARGET, Refused, "not available"),
        (Faults(), "i-00000000000000000", Unreachable, "no connection to the node"),
        (Faults(errors={"StartSession": ("AccessDeniedException", "no")}), TARGET, AwsError, "not allowed to call"),
        (Faults(errors={"StartSession": ("ExpiredTokenException", "old")}), TARGET, AwsError, "log in again"),
        (Faults(errors={"StartSession": ("InternalServerError", "no")}), TARGET, AwsError, "AWS failed .* try again"),
    ],
)
def test_failing_starts(faults: Faults, target: str, error: type[Exception], text: str) -> None:
    """Each failure has a reason, and no session remains."""

    async def start(service: FakeAws) -> None:
        account = Account(endpoint_url=service.endpoint)
        async with Session(account, target, NON_INTERACTIVE, {"command": ["true"]}, rate=StartRate(50)):
            pass

    with fake_aws([NODE], faults) as service:
        with pytest.raises(error, match=text):
            asyncio.run(start(service))
        assert not service.sessions


def test_cancelled_start() -> None:
    """If the caller is cancelled before the service's answer arrives, the started session is terminated."""

    async def start(service: FakeAws) -> None:
        session = Session(Account(endpoint_url=service.endpoint), TARGET, rate=StartRate(50))
        starting = asyncio.create_task(session.__aenter__())
        await asyncio.to_thread(until, lambda: service.sessions)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    with fake_aws([NODE], Faults(slow_start=0.5)) as service:
        asyncio.run(start(service))
        assert not service.sessions


def test_a_blocked_socket() -> None:
    """If the WebSocket cannot be opened, the error says so, and the session is terminated."""

    async def start(service: FakeAws) -> None:
        service.socket_port = 1
        account = Account(endpoint_url=service.endpoint)
        async with Session(account, TARGET, NON_INTERACTIVE, {"command": ["true"]}, rate=StartRate(50)):
            pass

    with fake_aws([NODE]) as service:
        with pytest.raises(Unreachable, match="WebSocket"):
            asyncio.run(start(service))
        assert not service.sessions


def test_a_socket_whose_token_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """If sending fails, the socket is closed and the session is terminated."""
    sockets: list[ClientConnection] = []

    async def broken(self: ClientConnection, _message: object) -> None:
        sockets.append(self)
        raise OSError("broken")

    async def start(service: FakeAws) -> None:
        monkeypatch.setattr(ClientConnection, "send", broken)
        with pytest.raises(Unreachable, match="broken"):
            await Session(Account(endpoint_url=service.endpoint), TARGET, rate=StartRate(50)).__aenter__()
        assert [socket.state for socket in sockets] == [State.CLOSED]

    with fake_aws([NODE]) as service:
        asyncio.run(start(service))
        assert not service.sessions


def test_cancelled_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call completes the close: no task and no session remains."""

    async def start(service: FakeAws) -> None:
        account = Account(endpoint_url=service.endpoint)
        parameters = {"command": ["sleep 300"], "separateOutputStream": ["true"]}
        session = await Session(account, TARGET, NON_INTERACTIVE, parameters, rate=StartRate(50)).__aenter__()
        pump = session._pump
        assert pump is not None
        monkeypatch.setattr(Channel, "terminate", lambda _: session._channel.send(b"unanswered"))
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await session.close()
        assert pump.done()

    with fake_aws([NODE]) as service:
        asyncio.run(start(service))
        assert not service.sessions


def test_a_socket_whose_close_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket is closed even if the node does not answer and the caller does not wait."""
    waiting = asyncio.Event()

    async def unanswered(_: ClientConnection) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def start(service: FakeAws) -> None:
        parameters = {"command": ["true"], "separateOutputStream": ["true"]}
        account = Account(endpoint_url=service.endpoint)
        session = await Session(account, TARGET, NON_INTERACTIVE, parameters, rate=StartRate(50)).__aenter__()
        transport = session._socket.transport
        with monkeypatch.context() as patch:
            patch.setattr(ClientConnection, "close", unanswered)
            closing = asyncio.create_task(session.close())
            await waiting.wait()
            closing.cancel()
            await asyncio.wait([closing])
        assert transport.is_closing()
        await session.close()

    with fake_aws([NODE]) as service:
        asyncio.run(start(service))
        assert not service.sessions


def test_no_service() -> None:
    """An unreachable endpoint is an error of the command, not of one host."""

    async def start() -> None:
        async with Session(Account("us-west-2", endpoint_url="http://127.0.0.1:1"), TARGET):
            pass

    with fake_aws([NODE]), pytest.raises(NoHostReached, match="cannot reach AWS"):
        asyncio.run(start())


def test_closing_ends_the_command() -> None:
    """Leaving the block ends the command on the node and the session at the service."""

    async def start(service: FakeAws) -> bytes:
        account = Account(endpoint_url=service.endpoint)
        parameters = {"command": ["sh -c 'echo $$; exec sleep 300'"], "separateOutputStream": ["true"]}
        async with Session(account, TARGET, NON_INTERACTIVE, parameters, rate=StartRate(50)) as session:
            return await session.read()

    with fake_aws([NODE]) as service:
        pid = int(asyncio.run(start(service)))
        assert not service.sessions
        until(lambda: (found := process(pid)) is None or found.state == "Z")
