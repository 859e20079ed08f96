"""A Session Manager data channel without any input or output: messages in, events and messages out.

The caller moves bytes and time: `receive` takes what the WebSocket delivered, `outgoing` gives what to send, `tick` is
called when `due` is reached. Every message is acknowledged at once, duplicates again, because an agent whose
acknowledgement was lost repeats the message forever. Messages that arrive early wait until those before them are there.

Input waits for the first message of the node: output, or the request for a handshake. During a handshake the node drops
input, or cannot decrypt it and waits for it in vain.
"""

from __future__ import annotations

import base64
import json
import re
from collections import deque
from typing import Any, Protocol

import msgspec

from rollbook.aws import messages
from rollbook.aws.messages import Message, Payload, acknowledge, acknowledged, decode, encode
from rollbook.errors import ProtocolError

__all__ = ["CLIENT_VERSION", "Channel", "Closed", "Event", "Exit", "Key", "KeyNeeded", "Output", "Stderr"]

CHUNK = 1024  # bytes of one outgoing payload
WINDOW = 256  # unacknowledged messages of ours
EARLY = 10_000  # messages that may wait for an earlier one
FIRST_TIMEOUT, LONGEST_TIMEOUT = 0.2, 1.0  # seconds
LEAST_MARGIN = 0.01
SILENCE = 300.0  # seconds without any message while ours are not acknowledged
CLIENT_VERSION = "1.2.700.0"  # older clients get an upgrade notice mixed into the output
OK, FAILED = 1, 2
EXIT_CODE = re.compile(rb"(?<!\d)-?\d{1,10}(?!\d)")
# What the node takes at any time.
URGENT = (Payload.HANDSHAKE_RESPONSE, Payload.CHALLENGE_RESPONSE, Payload.FLAG)


class Output(msgspec.Struct, frozen=True):
    """Standard output, or all output of a document that does not separate the streams."""

    data: bytes


class Stderr(msgspec.Struct, frozen=True):
    """Standard error."""

    data: bytes


class Exit(msgspec.Struct, frozen=True):
    """The command's exit status."""

    code: int


class KeyNeeded(msgspec.Struct, frozen=True):
    """The session is encrypted: call `Channel.use_key` with a data key of 64 bytes generated for this context."""

    key_id: str
    context: dict[str, str]


class Closed(msgspec.Struct, frozen=True):
    """The service closed the channel; `message` is its text, often empty."""

    message: str


Event = Output | Stderr | Exit | KeyNeeded | Closed


class Key(Protocol):
    """The two directions of an encrypted session."""

    ciphertext: bytes

    def encrypt(self, data: bytes) -> bytes:
        """Encrypt what the client sends."""

    def decrypt(self, data: bytes) -> bytes:
        """Decrypt what the agent sent; raises `ProtocolError`."""


class _Sent(msgspec.Struct):
    message: Message
    first: float
    at: float
    tries: int = 1


class Channel:
    """One session. Raises `ProtocolError` when the other side breaks the protocol or is silent for too long.

    `closed` is set once the channel cannot deliver anything more. `paused` is set while the service wants no new
    messages; acknowledgements and repetitions are sent regardless.
    """

    def __init__(self, session_id: str, target: str) -> None:
        self.closed = self.paused = False
        self._session_id, self._target = session_id, target
        self._takes_input = self._shakes_hands = False
        self._heard_at = 0.0
        self._expected = 0
        self._early: dict[int, Message] = {}
        self._next = 0
        self._unsent: deque[tuple[int, bytes]] = deque()
        self._sent: deque[_Sent] = deque()
        self._replies: list[bytes] = []
        self._rtt: float | None = None
        self._deviation = 0.0
        self._key: Key | None = None
        self._challenge: dict[str, Any] | None = None
        self._session_type = ""

    def send(self, data: bytes) -> None:
        """Queue input for the command."""
        for start in range(0, len(data), CHUNK):
            self._unsent.append((Payload.OUTPUT, data[start : start + CHUNK]))

    def terminate(self) -> None:
        """Ask the agent to end the session; input that it does not take yet is dropped."""
        if not self._takes_input:
            self._unsent.clear()
        self._unsent.append((Payload.FLAG, messages.TERMINATE_SESSION.to_bytes(4, "big")))

    @property
    def drained(self) -> bool:
        """Whether everything queued was sent and acknowledged."""
        return not self._unsent and not self._sent

    def outgoing(self, now: float) -> list[bytes]:
        """The messages to send now, acknowledgements first."""
        out, self._replies = self._replies, []
        while self._unsent and len(self._sent) < WINDOW and not self.paused:
            if not self._takes_input and self._unsent[0][0] not in URGENT:
                break
            kind, payload = self._unsent.popleft()
            if self._key is not None and kind == Payload.OUTPUT:
                payload = self._key.encrypt(payload)
            message = Message(
                kind=messages.INPUT,
                number=self._next,
                payload=payload,
                payload_type=kind,
                flags=messages.SYN if self._next == 0 else 0,
            )
            self._next += 1
            self._sent.append(_Sent(message, now, now))
            out.append(encode(message))
        return out

    @property
    def due(self) -> float | None:
        """When `tick` must be called next; None while everything is acknowledged."""
        return min((self._due(sent) for sent in self._sent), default=None)

    def tick(self, now: float) -> list[bytes]:
        """Repeat the messages whose time is up; raises `ProtocolError` if nothing was received for too long.

        Not only the oldest: some agents never acknowledge a message whose first acknowledgement was lost.
        """
        if self._sent and now - max(self._sent[0].first, self._heard_at) > SILENCE:
            raise ProtocolError("the node has stopped acknowledging messages")
        late = [sent for sent in self._sent if now >= self._due(sent)]
        for sent in late:
            sent.at, sent.tries = now, sent.tries + 1
        return [encode(sent.message) for sent in late]

    def _due(self, sent: _Sent) -> float:
        return sent.at + min(LONGEST_TIMEOUT, self._timeout * sent.tries)

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take one binary message; gives the events that follow from it, in order.

        A message that does not match its hash or cannot be read is dropped: its sender repeats it.
        """
        try:
            message = decode(data)
            self._heard_at = now
            if message.kind == messages.ACKNOWLEDGE:
                self._forget(acknowledged(message), now)
                return []
        except ProtocolError:
            return []
        if message.kind == messages.PAUSE:
            self.paused = True
        elif message.kind == messages.START:
            self.paused = False
        elif message.kind == messages.CLOSED:
            self.closed = True
            return [Closed(_closing_text(message.payload))]
        elif message.kind == messages.OUTPUT:
            return self._stream(message)
        return []

    def use_key(self, key: Key) -> None:
        """Answer the handshake with the data key that `KeyNeeded` asked for."""
        self._key = key
        self._respond()

    def refuse_key(self, reason: str) -> None:
        """Answer the handshake: no data key could be generated."""
        self._key = None
        self._respond(reason)

    def _forget(self, number: int, now: float) -> None:
        for place, sent in enumerate(self._sent):
            if sent.message.number == number:
                if sent.tries == 1:  # the answer to a repetition may belong to the first try
                    self._measure(now - sent.at)
                del self._sent[place]
                return

    def _measure(self, rtt: float) -> None:
        if self._rtt is None:
            self._rtt, self._deviation = rtt, rtt / 2
        else:
            self._deviation += (abs(rtt - self._rtt) - self._deviation) / 4
            self._rtt += (rtt - self._rtt) / 8

    @property
    def _timeout(self) -> float:
        if self._rtt is None:
            return FIRST_TIMEOUT
        return min(LONGEST_TIMEOUT, self._rtt + max(LEAST_MARGIN, 4 * self._deviation))

    def _stream(self, message: Message) -> list[Event]:
        if message.number > self._expected:
            if len(self._early) >= EARLY:
                return []  # not acknowledged: it comes again
            self._early[message.number] = message
        self._replies.append(encode(acknowledge(message)))
        if message.number != self._expected:
            return []
        events: list[Event] = []
        self._early[message.number] = message
        while (ready := self._early.pop(self._expected, None)) is not None:
            self._expected += 1
            events += self._payload(ready)
        return events

    def _payload(self, message: Message) -> list[Event]:
        kind, data = message.payload_type, message.payload
        self._shakes_hands |= kind == Payload.HANDSHAKE_REQUEST
        self._takes_input |= kind == Payload.HANDSHAKE_COMPLETE or not self._shakes_hands
        if self._key is not None and kind in (Payload.OUTPUT, Payload.STDERR, Payload.EXIT_CODE):
            data = self._key.decrypt(data)
        if kind in (Payload.OUTPUT, Payload.ERROR):
            return [Output(data)]
        if kind == Payload.STDERR:
            return [Stderr(data)]
        if kind == Payload.EXIT_CODE:
            found = EXIT_CODE.search(data)
            return [Exit(int(found[0]))] if found else []
        if kind == Payload.HANDSHAKE_REQUEST:
            return self._handshake(data)
        if kind == Payload.CHALLENGE_REQUEST:
            self._answer_challenge(data)
        return []

    def _handshake(self, data: bytes) -> list[Event]:
        request = _object(data, "handshake request")
        actions = request.get("RequestedClientActions")
        key: dict[str, Any] | None = None
        for action in actions if isinstance(actions, list) else []:
            match action:
                case {"ActionType": "SessionType", "ActionParameters": {"SessionType": kind}}:
                    self._session_type = str(kind)
                case {"ActionType": "KMSEncryption"}:
                    parameters = action.get("ActionParameters")
                    key = parameters if isinstance(parameters, dict) else {}
        self._challenge = key
        if key is None:
            self._respond()
            return []
        context = {"aws:ssm:SessionId": self._session_id, "aws:ssm:TargetId": self._target}
        if challenge := key.get("Challenge"):
            context["aws:ssm:RandomChallenge"] = str(challenge)
        return [KeyNeeded(str(key.get("KMSKeyId", "")), context)]

    def _respond(self, error: str = "") -> None:
        """Queue the handshake response, before any input."""
        processed: list[dict[str, Any]] = []
        if self._session_type:
            processed.append({"ActionType": "SessionType", "ActionStatus": OK, "ActionResult": None, "Error": ""})
        if self._challenge is not None:
            action: dict[str, Any] = {"ActionType": "KMSEncryption", "ActionStatus": FAILED, "Error": error}
            if self._key is not None:
                blob = base64.b64encode(self._key.ciphertext).decode()
                result: dict[str, Any] = {"KMSCipherTextKey": blob}
                if self._challenge.get("Challenge"):
                    result["ChallengeAcknowledgement"] = True
                action = {"ActionType": "KMSEncryption", "ActionStatus": OK, "ActionResult": result, "Error": ""}
            processed.append(action)
        response = {
            "ClientVersion": CLIENT_VERSION,
            "ProcessedClientActions": processed,
            "Errors": [error] if error else [],
        }
        self._unsent.appendleft((Payload.HANDSHAKE_RESPONSE, json.dumps(response).encode()))

    def _answer_challenge(self, data: bytes) -> None:
        """Prove that both sides have the same keys: decrypt the agent's challenge and encrypt it with ours."""
        if self._key is None:
            raise ProtocolError("the node sent an encryption challenge before the handshake")
        try:
            challenge = base64.b64decode(str(_object(data, "encryption challenge").get("Challenge", "")), validate=True)
        except ValueError:
            raise ProtocolError("the node sent an encryption challenge that cannot be read") from None
        answer = base64.b64encode(self._key.encrypt(self._key.decrypt(challenge))).decode()
        self._unsent.appendleft((Payload.CHALLENGE_RESPONSE, json.dumps({"Challenge": answer}).encode()))


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ProtocolError(f"the node sent a {what} that cannot be read")
    return found


def _closing_text(payload: bytes) -> str:
    try:
        return str(json.loads(payload).get("Output") or "")
    except (ValueError, AttributeError, RecursionError):
        return ""
