"""The node's side of a Session Manager channel, without input or output, as the public agent behaves.

It numbers, repeats and acknowledges messages by the same rules as the real agent; `close_after` seconds after the
command ended it closes the channel even if acknowledgements are outstanding, as the real one does after two seconds.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from rollbook.aws import messages
from rollbook.aws.messages import Message, Payload, acknowledge, acknowledgement, decode, encode

__all__ = ["NodeSide"]

CHUNK = 1024
TIMEOUT = 0.2


class NodeSide:
    """Feeds a client: `say` queues output, `receive` takes what the client sent, `tick` repeats what was lost."""

    def __init__(self, *, handshake: dict[str, Any] | None = None) -> None:
        self.input = bytearray()
        self.response: dict[str, Any] | None = None
        self.challenged: dict[str, Any] | None = None
        self.terminated = False
        self._expected = 0
        self._early: dict[int, Message] = {}
        self._next = 0
        self._sent: deque[tuple[float, Message]] = deque()
        self._replies: list[bytes] = []
        self._queued: deque[tuple[int, bytes]] = deque()
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
        """What to send now."""
        out, self._replies = self._replies, []
        while self._queued:
            kind, payload = self._queued.popleft()
            flags = messages.SYN if self._next == 0 else 0
            message = Message(kind=messages.OUTPUT, number=self._next, payload=payload, payload_type=kind, flags=flags)
            self._next += 1
            self._sent.append((now, message))
            out.append(encode(message))
        return out

    def tick(self, now: float) -> list[bytes]:
        """Repeat the oldest message if its acknowledgement is late."""
        if not self._sent or now - self._sent[0][0] < TIMEOUT:
            return []
        message = self._sent[0][1]
        self._sent[0] = (now, message)
        return [encode(message)]

    def receive(self, data: bytes) -> None:
        """Take one message of the client."""
        message = decode(data)
        if message.kind == messages.ACKNOWLEDGE:
            number = acknowledgement(message).number
            self._sent = deque(item for item in self._sent if item[1].number != number)
            return
        self._replies.append(encode(acknowledge(message)))
        if message.number < self._expected:
            return
        self._early[message.number] = message
        while (ready := self._early.pop(self._expected, None)) is not None:
            self._expected += 1
            self._take(ready)

    def _take(self, message: Message) -> None:
        if message.payload_type == Payload.OUTPUT:
            self.input += message.payload
        elif message.payload_type == Payload.HANDSHAKE_RESPONSE:
            self.response = json.loads(message.payload)
            complete = {"HandshakeTimeToComplete": 1000000, "CustomerMessage": ""}
            self._queued.appendleft((Payload.HANDSHAKE_COMPLETE, json.dumps(complete).encode()))
        elif message.payload_type == Payload.CHALLENGE_RESPONSE:
            self.challenged = json.loads(message.payload)
        elif message.payload_type == Payload.FLAG:
            self.terminated |= message.payload == (2).to_bytes(4, "big")
