"""The channel against a node that follows the real rules, over a network that loses, repeats and reorders messages."""

from __future__ import annotations

import base64
import json
import random
from collections import deque
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.aws import messages
from rollbook.aws.channel import Channel, Closed, Event, Exit, KeyNeeded, Output, Ready, Stderr
from rollbook.aws.messages import Message, Payload, acknowledgement, decode, encode
from rollbook.errors import ProtocolError
from tests.support.ssm import NodeSide

HANDSHAKE = {
    "AgentVersion": "3.3.0",
    "RequestedClientActions": [
        {"ActionType": "SessionType", "ActionParameters": {"SessionType": "NonInteractiveCommands", "Properties": {}}}
    ],
}


Network = Callable[[deque[bytes], list[bytes]], list[bytes]]


def deliver(seed: int, loss: float, repeat: float, late: float) -> Network:
    """A network: takes messages into its queue, gives those that arrive now."""
    dice = random.Random(seed)

    def pass_on(queue: deque[bytes], sent: list[bytes]) -> list[bytes]:
        for message in sent:
            if dice.random() >= loss:
                queue.extend([message] * (2 if dice.random() < repeat else 1))
        arrived = [queue.popleft() for _ in range(len(queue))]
        kept = [message for message in arrived if dice.random() < late]
        arrived = [message for message in arrived if message not in kept]
        queue.extend(kept)
        dice.shuffle(arrived)
        return arrived

    return pass_on


def converse(
    channel: Channel, node: NodeSide, network: Callable[[deque[bytes], list[bytes]], list[bytes]]
) -> list[Event]:
    """Run both sides until everything is acknowledged; gives what the client saw."""
    to_node: deque[bytes] = deque()
    to_client: deque[bytes] = deque()
    events: list[Event] = []
    for step in range(100_000):
        now = step * 0.02
        for data in network(to_node, channel.outgoing(now) + channel.tick(now)):
            node.receive(data)
        for data in network(to_client, node.outgoing(now) + node.tick(now)):
            events += channel.receive(data, now)
        if channel.drained and not node.outstanding and not to_node and not to_client and step > 2:
            return events
    raise AssertionError("the two sides never came to an end")


@settings(deadline=None, max_examples=60)
@given(
    faults=st.tuples(st.integers(0, 2**32), st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 0.7)),
    output=st.lists(st.binary(max_size=3000), max_size=8),
    sent=st.binary(max_size=5000),
)
def test_any_schedule(faults: tuple[int, float, float, float], output: list[bytes], sent: bytes) -> None:
    """Whatever the network does to single messages, both sides get exactly what the other sent, in order."""
    channel, node = Channel("s-1", "i-1"), NodeSide(handshake=HANDSHAKE)
    channel.send(sent)
    for part in output:
        node.say(part)
    node.say(b"trouble", Payload.STDERR)
    node.exit(3)
    events = converse(channel, node, deliver(*faults))
    assert b"".join(event.data for event in events if isinstance(event, Output)) == b"".join(output)
    assert [event for event in events if isinstance(event, Stderr)] == [Stderr(b"trouble")]
    assert [event for event in events if isinstance(event, Exit)] == [Exit(3)]
    assert Ready("NonInteractiveCommands", "3.3.0") in events
    assert bytes(node.input) == sent
    assert node.response is not None
    assert node.response["ProcessedClientActions"][0]["ActionStatus"] == 1


def test_duplicates_are_acknowledged_again() -> None:
    """An agent whose acknowledgement was lost would otherwise repeat the message forever."""
    channel = Channel("s-1", "i-1")
    data = encode(Message(kind=messages.OUTPUT, payload=b"x", payload_type=1))
    assert channel.receive(data, 0.0) == [Output(b"x")]
    assert channel.receive(data, 0.1) == []
    assert [acknowledgement(decode(reply)).number for reply in channel.outgoing(0.1)] == [0, 0]


def test_no_handshake() -> None:
    """Documents with a terminal skip it: bare output may be the first message."""
    channel, node = Channel("s-1", "i-1"), NodeSide()
    node.say(b"$ ")
    assert converse(channel, node, deliver(1, 0, 0, 0)) == [Output(b"$ ")]


def test_the_oldest_message_is_repeated_until_given_up() -> None:
    """Only the oldest, and not forever."""
    channel = Channel("s-1", "i-1")
    channel.send(b"a" * 2000)
    assert len(channel.outgoing(0.0)) == 2
    assert channel.tick(0.1) == []
    (again,) = channel.tick(0.3)
    assert decode(again).number == 0
    for number in range(2998):
        assert channel.tick(2.0 * number + 2)
    with pytest.raises(ProtocolError, match="acknowledges nothing"):
        channel.tick(1e6)


def test_pause_and_start() -> None:
    """While publication is paused nothing new is sent; acknowledgements are."""
    channel = Channel("s-1", "i-1")
    channel.receive(encode(Message(kind=messages.PAUSE)), 0.0)
    channel.send(b"x")
    channel.receive(encode(Message(kind=messages.OUTPUT, payload=b"y", payload_type=1)), 0.0)
    assert [decode(data).kind for data in channel.outgoing(0.0)] == [messages.ACKNOWLEDGE]
    channel.receive(encode(Message(kind=messages.START)), 0.0)
    assert [decode(data).kind for data in channel.outgoing(0.0)] == [messages.INPUT]


def test_closed() -> None:
    """The service's text is kept."""
    channel = Channel("s-1", "i-1")
    payload = json.dumps({"Output": "session terminated"}).encode()
    assert channel.receive(encode(Message(kind=messages.CLOSED, payload=payload)), 0.0) == [
        Closed("session terminated")
    ]
    assert channel.closed


class Xor:
    """A stand-in for the cipher; the real one is tested with the fake service."""

    ciphertext = b"blob"

    def encrypt(self, data: bytes) -> bytes:
        """Change every byte."""
        return bytes(byte ^ 85 for byte in data)

    def decrypt(self, data: bytes) -> bytes:
        """The same again."""
        return bytes(byte ^ 170 for byte in data)


def test_encryption() -> None:
    """The key is asked for with the context of the session, and used for output, exit status and challenge."""
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
    assert Output(b"secret") in converse(channel, node, deliver(1, 0, 0, 0))
    assert node.response is not None
    assert node.response["ProcessedClientActions"][1]["ActionResult"] == {
        "KMSCipherTextKey": base64.b64encode(b"blob").decode(),
        "ChallengeAcknowledgement": True,
    }
    assert node.challenged == {"Challenge": base64.b64encode(bytes(byte ^ 85 for byte in b"nonce")).decode()}


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b'{"RequestedClientActions": [1, {"ActionType": "x"}, null]}'])
def test_odd_handshakes(payload: bytes) -> None:
    """What cannot be read is an error of the protocol; unknown actions are passed over."""
    channel = Channel("s-1", "i-1")
    data = encode(Message(kind=messages.OUTPUT, payload=payload, payload_type=Payload.HANDSHAKE_REQUEST))
    if payload.startswith(b'{"'):
        assert channel.receive(data, 0.0) == []
    else:
        with pytest.raises(ProtocolError):
            channel.receive(data, 0.0)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes(parts: list[bytes]) -> None:
    """Bytes from the network never raise anything but `ProtocolError`."""
    channel = Channel("s-1", "i-1")
    for part in parts:
        for kind in (Payload.OUTPUT, Payload.EXIT_CODE, Payload.FLAG):
            channel.receive(part, 0.0)
            channel.receive(encode(Message(kind=messages.OUTPUT, number=0, payload=part, payload_type=kind)), 0.0)
