"""The node's side of a Session Manager channel, without input or output, as the public agent behaves.

It numbers, repeats and acknowledges messages by the same rules as the real agent. During a handshake it drops input.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

from rollbook.aws import messages
from rollbook.aws.messages import Message, Payload, acknowledge, acknowledged, decode, encode

__all__ = ["NodeSide"]

CHUNK = 1024
TIMEOUT = 0.2


class NodeSide:
    """The node: `say` queues output, `receive` takes a message of the client, `tick` repeats lost messages.

    With `forgetful` it acknowledges each message only once, as some agents do, even if the acknowledgement was lost.
    `decrypt` is set once the session is encrypted; until `takes_input` the command must not be started.
    """

    def __init__(self, *, handshake: dict[str, Any] | None = None, forgetful: bool = False) -> None:
        self.input = bytearray()
        self.takes_input, self._forgetful = handshake is None, forgetful
        self.decrypt: Callable[[bytes], bytes] = bytes
        self.response: dict[str, Any] | None = None
        self.challenged: dict[str, Any] | None = None
        self.terminated = False
        self._expected = 0
        self._early: dict[int, Message] = {}
        self._next = 0
        self._sent: dict[int, tuple[float, Message]] = {}
        self._replies: list[bytes] = []
        self._queued: deque[tuple[int, bytes]] = deque()
        self._encrypted = "KMSEncryption" in json.dumps(handshake)
        if handshake is not None:
            self._queued.append((Payload.HANDSHAKE_REQUEST, json.dumps(handshake).encode()))

    @property
    def outstanding(self) -> int:
        """Messages that the client has not acknowledged."""
        return len(self._sent) + len(self._queued)

    def say(self, data: bytes, kind: int = Payload.OUTPUT) -> None:
        """Queue output in the chunks of the real agent."""
        for start in range(0, len(data), CHUNK):
            self._queued.append((kind, data[start : start + CHUNK]))

    def exit(self, code: int) -> None:
        """Queue the exit status."""
        self._queued.append((Payload.EXIT_CODE, f"EXIT_CODE: {code}".encode()))

    def outgoing(self, now: float) -> list[bytes]:
        """The messages to send now."""
        out, self._replies = self._replies, []
        while self._queued:
            kind, payload = self._queued.popleft()
            flags = messages.SYN if self._next == 0 else 0
            message = Message(kind=messages.OUTPUT, number=self._next, payload=payload, payload_type=kind, flags=flags)
            self._sent[self._next] = (now, message)
            self._next += 1
            out.append(encode(message))
        return out

    def tick(self, now: float) -> list[bytes]:
        """Repeat the oldest message if its acknowledgement is late."""
        number, (sent, message) = next(iter(self._sent.items()), (0, (now, None)))
        if message is None or now - sent < TIMEOUT:
            return []
        self._sent[number] = (now, message)
        return [encode(message)]

    def receive(self, data: bytes) -> None:
        """Take one message of the client."""
        message = decode(data)
        if message.kind == messages.ACKNOWLEDGE:
            self._sent.pop(acknowledged(message), None)
            return
        is_old = message.number < self._expected
        if not (is_old and self._forgetful):
            self._replies.append(encode(acknowledge(message)))
        if is_old:
            return
        self._early[message.number] = message
        while (ready := self._early.pop(self._expected, None)) is not None:
            self._expected += 1
            self._take(ready)

    def _take(self, message: Message) -> None:
        if message.payload_type == Payload.OUTPUT:
            self.input += self.decrypt(message.payload) if self.takes_input else b""
        elif message.payload_type == Payload.HANDSHAKE_RESPONSE:
            self.response = json.loads(message.payload)
            if not self._encrypted:
                self._complete()
        elif message.payload_type == Payload.CHALLENGE_RESPONSE:
            self.challenged = json.loads(message.payload)
            self._complete()
        elif message.payload_type == Payload.FLAG:
            self.terminated |= message.payload == (2).to_bytes(4, "big")

    def _complete(self) -> None:
        complete = {"HandshakeTimeToComplete": 1000000, "CustomerMessage": ""}
        self._queued.appendleft((Payload.HANDSHAKE_COMPLETE, json.dumps(complete).encode()))
        self.takes_input = True
