"""The channel with a node that follows the real protocol, over a network that loses, repeats and reorders messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rollbook.aws import messages
from rollbook.aws.channel import Channel, Closed, Event, Exit, KeyNeeded, Output, Stderr
from rollbook.aws.messages import Message, Payload, acknowledge, acknowledged, decode, encode
from rollbook.errors import ProtocolError
from tests.support.ssm import NodeSide

HANDSHAKE = {
    "AgentVersion": "3.3.0",
    "RequestedClientActions": [
        {"ActionType": "SessionType", "ActionParameters": {"SessionType": "NonInteractiveCommands", "Properties": {}}}
    ],
}


class Schedule(RuleBasedStateMachine):
    """Random schedules: messages wait on two wires and are delivered in any order, lost, repeated or damaged.

    The socket may drop, with all messages on its wires, and the service may pause publication. At the end the network
    works: each side must receive exactly what the other sent, in order.
    """

    @initialize(handshake=st.booleans(), forgetful=st.booleans())
    def begin(self, handshake: bool, forgetful: bool) -> None:
        """Open the channel."""
        self.channel = Channel("s-1", "i-1")
        self.node = NodeSide(handshake=HANDSHAKE if handshake else None, forgetful=forgetful)
        self.handshake, self.now = handshake, 0.0
        self.wires: tuple[list[bytes], list[bytes]] = ([], [])
        self.typed, self.output, self.stderr = b"", b"", b""
        self.events: list[Event] = []

    @rule(data=st.binary(max_size=3000))
    def type(self, data: bytes) -> None:
        """Queue input."""
        self.channel.send(data)
        self.typed += data

    @rule(data=st.binary(max_size=3000))
    def write_output(self, data: bytes) -> None:
        """The command writes to its standard output."""
        self.node.say(data)
        self.output += data

    @rule(data=st.binary(max_size=100))
    def write_error(self, data: bytes) -> None:
        """The command writes to its standard error."""
        self.node.say(data, Payload.STDERR)
        self.stderr += data

    @rule(seconds=st.sampled_from([0.0, 0.01, 0.3, 2.0]))
    def send(self, seconds: float) -> None:
        """Advance the time; both sides send the messages that are due."""
        self.now += seconds
        self.wires[0].extend(self.channel.outgoing(self.now) + self.channel.tick(self.now))
        self.wires[1].extend(self.node.outgoing(self.now) + self.node.tick(self.now))

    @precondition(lambda self: any(self.wires))
    @rule(data=st.data(), fate=st.sampled_from(["deliver", "deliver", "lose", "repeat", "damage"]))
    def handle_message(self, data: st.DataObject, fate: str) -> None:
        """Deliver, lose, repeat or damage one message of a wire."""
        side = data.draw(st.sampled_from([side for side in (0, 1) if self.wires[side]]))
        place = data.draw(st.integers(0, len(self.wires[side]) - 1))
        message = self.wires[side][place] if fate == "repeat" else self.wires[side].pop(place)
        if fate == "damage":
            at = data.draw(st.integers(120, len(message) - 1)) if len(message) > 120 else 0
            message = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        if fate != "lose":
            self.deliver(side, message)

    @rule()
    def drop(self) -> None:
        """The socket drops."""
        for wire in self.wires:
            wire.clear()

    @rule(kind=st.sampled_from([messages.PAUSE, messages.START]))
    def publication(self, kind: str) -> None:
        """The service pauses publication, or starts it."""
        self.events += self.channel.receive(encode(Message(kind=kind)), self.now)

    def deliver(self, side: int, message: bytes) -> None:
        """Deliver a message to the channel or to the node."""
        if side:
            self.events += self.channel.receive(message, self.now)
        else:
            with suppress(ProtocolError):  # the real agent drops it as well
                self.node.receive(message)

    @invariant()
    def received_data_is_a_prefix(self) -> None:
        """The received data is a prefix of the sent data."""
        if hasattr(self, "node"):
            assert self.output.startswith(received(self.events, Output))
            assert self.stderr.startswith(received(self.events, Stderr))
            assert self.typed.startswith(self.node.input)

    def teardown(self) -> None:
        """Repair the network, and compare what both sides received."""
        if not hasattr(self, "node"):
            return
        self.publication(messages.START)
        self.type(b"input that a node drops until the handshake is complete")
        self.write_output(b"the node's first message, if it was silent")
        self.node.exit(3)
        for _ in range(1000):
            self.send(0.3)
            for side in (0, 1):
                while self.wires[side]:
                    self.deliver(side, self.wires[side].pop(0))
            if Exit(3) in self.events and self.node.input == self.typed:
                break
        assert received(self.events, Output) == self.output
        assert received(self.events, Stderr) == self.stderr
        assert [event for event in self.events if isinstance(event, Exit)] == [Exit(3)]
        assert bytes(self.node.input) == self.typed
        assert (self.node.response is not None) == self.handshake


TestAnySchedule = Schedule.TestCase
TestAnySchedule.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


def received(events: Iterable[Event], kind: type[Output | Stderr]) -> bytes:
    """Join the data that arrived on one stream."""
    return b"".join(event.data for event in events if isinstance(event, kind))


def exchange(channel: Channel, node: NodeSide) -> list[Event]:
    """Run both sides without network faults until everything is acknowledged; return the client's events."""
    events: list[Event] = []
    for step in range(100):
        for data in channel.outgoing(step):
            node.receive(data)
        for data in node.outgoing(step):
            events += channel.receive(data, step)
    assert channel.drained
    assert not node.outstanding
    return events


def test_duplicates_are_acknowledged_again() -> None:
    """An agent whose acknowledgement was lost would otherwise repeat the message forever."""
    channel = Channel("s-1", "i-1")
    data = encode(Message(kind=messages.OUTPUT, payload=b"x", payload_type=1))
    assert channel.receive(data, 0.0) == [Output(b"x")]
    assert channel.receive(data, 0.1) == []
    assert [acknowledged(decode(reply)) for reply in channel.outgoing(0.1)] == [0, 0]


def test_session_without_handshake() -> None:
    """Documents with a terminal skip the handshake: the first message may be output."""
    channel, node = Channel("s-1", "i-1"), NodeSide()
    node.say(b"$ ")
    assert exchange(channel, node) == [Output(b"$ ")]


def open_channel() -> Channel:
    """A channel whose node accepts input."""
    channel = Channel("s-1", "i-1")
    channel.receive(encode(Message(kind=messages.OUTPUT, payload=b"$ ", payload_type=1)), 0.0)
    channel.outgoing(0.0)
    return channel


def sequence_numbers(sent: list[bytes]) -> list[int]:
    """The sequence numbers of messages."""
    return [decode(data).number for data in sent]


def test_retransmission() -> None:
    """A message is sent again, with backoff, until it is acknowledged; an unacknowledged one does not delay others."""
    channel = open_channel()
    channel.send(b"a" * 2000)
    assert sequence_numbers(channel.outgoing(0.0)) == [0, 1]
    assert channel.tick(0.1) == []
    assert sequence_numbers(channel.tick(0.3)) == [0, 1]
    channel.receive(encode(acknowledge(Message(kind=messages.INPUT, number=1))), 0.4)
    assert sequence_numbers(channel.tick(0.6)) == []
    assert sequence_numbers(channel.tick(0.8)) == [0]
    assert channel.due == pytest.approx(0.8 + 0.6)
    channel.send(b"b")
    assert sequence_numbers(channel.outgoing(0.9)) == [2]
    assert sequence_numbers(channel.tick(1.2)) == [2]


def test_silent_node() -> None:
    """Without any message from the node, the channel stops sending messages again and fails after a timeout."""
    channel = open_channel()
    channel.send(b"x")
    channel.outgoing(0.0)
    assert channel.tick(299.0)
    channel.receive(encode(Message(kind=messages.OUTPUT, number=1, payload=b"y", payload_type=1)), 299.0)
    assert channel.tick(598.0)
    with pytest.raises(ProtocolError, match="stopped acknowledging"):
        channel.tick(600.0)


def test_input_is_held_back_until_the_node_is_ready() -> None:
    """The node would lose input during the handshake; a request to end the session is sent at any time."""
    channel, node = Channel("s-1", "i-1"), NodeSide(handshake=HANDSHAKE)
    channel.send(b"orders")
    assert channel.outgoing(0.0) == []
    exchange(channel, node)
    assert node.input == b"orders"
    silent, node = Channel("s-1", "i-1"), NodeSide()
    silent.send(b"orders")
    silent.terminate()
    exchange(silent, node)
    assert node.terminated
    assert node.input == b""


def test_pause_and_start() -> None:
    """While publication is paused, only acknowledgements are sent."""
    channel = Channel("s-1", "i-1")
    channel.receive(encode(Message(kind=messages.PAUSE)), 0.0)
    channel.send(b"x")
    channel.receive(encode(Message(kind=messages.OUTPUT, payload=b"y", payload_type=1)), 0.0)
    assert [decode(data).kind for data in channel.outgoing(0.0)] == [messages.ACKNOWLEDGE]
    channel.receive(encode(Message(kind=messages.START)), 0.0)
    assert [decode(data).kind for data in channel.outgoing(0.0)] == [messages.INPUT]


def test_closed() -> None:
    """The event has the service's message."""
    channel = Channel("s-1", "i-1")
    payload = json.dumps({"Output": "session terminated"}).encode()
    assert channel.receive(encode(Message(kind=messages.CLOSED, payload=payload)), 0.0) == [
        Closed("session terminated")
    ]
    assert channel.closed


class Xor:
    """A fake cipher; the real one is tested with the fake service."""

    ciphertext = b"blob"

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt with one key."""
        return bytes(byte ^ 85 for byte in data)

    def decrypt(self, data: bytes) -> bytes:
        """Decrypt with the other key."""
        return bytes(byte ^ 170 for byte in data)


def test_encryption() -> None:
    """The key is requested with the context of the session, and used for output and the challenge."""
    action = {"ActionType": "KMSEncryption", "ActionParameters": {"KMSKeyId": "key-1", "Challenge": "c"}}
    actions = [*HANDSHAKE["RequestedClientActions"], action]
    channel = Channel("s-1", "i-1")
    node = NodeSide(handshake={"AgentVersion": "3.3.0", "RequestedClientActions": actions})
    (first,) = node.outgoing(0.0)
    context = {"aws:ssm:SessionId": "s-1", "aws:ssm:TargetId": "i-1", "aws:ssm:RandomChallenge": "c"}
    assert channel.receive(first, 0.0) == [KeyNeeded("key-1", context)]
    channel.use_key(Xor())
    challenge = base64.b64encode(bytes(byte ^ 170 for byte in b"nonce")).decode()
    node.say(json.dumps({"Challenge": challenge}).encode(), Payload.CHALLENGE_REQUEST)
    node.say(bytes(byte ^ 170 for byte in b"secret"))
    assert Output(b"secret") in exchange(channel, node)
    assert node.response is not None
    assert node.response["ProcessedClientActions"][1]["ActionResult"] == {
        "KMSCipherTextKey": base64.b64encode(b"blob").decode(),
        "ChallengeAcknowledgement": True,
    }
    assert node.challenged == {"Challenge": base64.b64encode(bytes(byte ^ 85 for byte in b"nonce")).decode()}


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b'{"RequestedClientActions": [1, {"ActionType": "x"}, null]}'])
def test_malformed_handshakes(payload: bytes) -> None:
    """A handshake that cannot be parsed is a protocol error; unknown actions are ignored."""
    channel = Channel("s-1", "i-1")
    data = encode(Message(kind=messages.OUTPUT, payload=payload, payload_type=Payload.HANDSHAKE_REQUEST))
    if payload.startswith(b'{"'):
        assert channel.receive(data, 0.0) == []
    else:
        with pytest.raises(ProtocolError):
            channel.receive(data, 0.0)


@pytest.mark.parametrize(
    ("payload", "codes"),
    [(b"0", [0]), (b"exit status -1", [-1]), (b"9" * 5000, []), (b"-" + b"9" * 5000, []), (b"none", [])],
)
def test_exit_codes(payload: bytes, codes: list[int]) -> None:
    """An exit status is a number of a few digits; a longer one, which Python would refuse, is none."""
    message = Message(kind=messages.OUTPUT, payload=payload, payload_type=Payload.EXIT_CODE)
    assert Channel("s-1", "i-1").receive(encode(message), 0.0) == [Exit(code) for code in codes]


def test_an_acknowledgement_of_an_infinite_number() -> None:
    """It is dropped like others that cannot be read; the session goes on."""
    channel = open_channel()
    payload = b'{"AcknowledgedMessageSequenceNumber": 1e999}'
    assert channel.receive(encode(Message(kind=messages.ACKNOWLEDGE, payload=payload)), 0.1) == []


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes(parts: list[bytes]) -> None:
    """Arbitrary messages and payloads of output raise no exception."""
    channel = Channel("s-1", "i-1")
    for part in parts:
        for kind in (Payload.OUTPUT, Payload.EXIT_CODE, Payload.FLAG):
            channel.receive(part, 0.0)
            channel.receive(encode(Message(kind=messages.OUTPUT, number=0, payload=part, payload_type=kind)), 0.0)
