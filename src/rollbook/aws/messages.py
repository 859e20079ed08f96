"""The binary messages of a Session Manager data channel.

A message is a header of 116 bytes, the length of the payload, and the payload; all numbers are big-endian. The header
contains a SHA-256 of the payload, so a damaged message is detected; it is then dropped, and its sender repeats it.
"""

from __future__ import annotations

import enum
import hashlib
import json
import struct
import time
import uuid

import msgspec

from rollbook.errors import ProtocolError

__all__ = ["Message", "Payload", "acknowledge", "acknowledged", "decode", "encode"]

HEADER = struct.Struct(">I32sIQqQ8s8s32sII")
HEADER_LENGTH = HEADER.size - 4  # the header's own length field excludes the payload length
VERSION = 1
LARGEST = 1 << 20  # bytes of one payload; the service's own messages have about a kilobyte
SYN, FIN = 1, 2
TERMINATE_SESSION = 2  # content of a payload of type `FLAG`

INPUT, OUTPUT, ACKNOWLEDGE = "input_stream_data", "output_stream_data", "acknowledge"
CLOSED, PAUSE, START = "channel_closed", "pause_publication", "start_publication"


class Payload(enum.IntEnum):
    """What the payload of a stream message is."""

    NONE = 0
    OUTPUT = 1
    ERROR = 2
    SIZE = 3
    HANDSHAKE_REQUEST = 5
    HANDSHAKE_RESPONSE = 6
    HANDSHAKE_COMPLETE = 7
    CHALLENGE_REQUEST = 8
    CHALLENGE_RESPONSE = 9
    FLAG = 10
    STDERR = 11
    EXIT_CODE = 12


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message. `number` counts the stream messages of one direction from zero."""

    kind: str
    number: int = 0
    payload: bytes = b""
    payload_type: int = 0
    flags: int = 0
    id: uuid.UUID = msgspec.field(default_factory=uuid.uuid4)
    created_ms: int = msgspec.field(default_factory=lambda: time.time_ns() // 10**6)


def encode(message: Message) -> bytes:
    """The message as it is sent."""
    raw = message.id.bytes
    header = HEADER.pack(
        HEADER_LENGTH,
        message.kind.encode("ascii").ljust(32),
        VERSION,
        message.created_ms,
        message.number,
        message.flags,
        raw[8:],  # the halves of the UUID are swapped on the wire
        raw[:8],
        hashlib.sha256(message.payload).digest(),
        message.payload_type,
        len(message.payload),
    )
    return header + message.payload


def decode(data: bytes) -> Message:
    """The message in `data`; raises `ProtocolError` if it is truncated, too large or damaged."""
    if len(data) < HEADER.size:
        raise ProtocolError("a Session Manager message is truncated")
    length, kind, _, created, number, flags, low, high, digest, payload_type, size = HEADER.unpack_from(data)
    if not HEADER_LENGTH <= length <= len(data) - 4 or size > LARGEST or length + 4 + size != len(data):
        raise ProtocolError("a Session Manager message has an inconsistent length")
    payload = data[length + 4 :]
    if payload and hashlib.sha256(payload).digest() != digest:
        raise ProtocolError("a Session Manager message does not match its hash")
    try:
        name = kind.rstrip(b" \0").decode("ascii")
    except UnicodeDecodeError:
        raise ProtocolError("a Session Manager message has an unreadable type") from None
    return Message(
        kind=name,
        number=number,
        payload=payload,
        payload_type=payload_type,
        flags=flags,
        id=uuid.UUID(bytes=high + low),
        created_ms=created,
    )


def acknowledge(message: Message) -> Message:
    """The acknowledgement of a stream message."""
    content = {
        "AcknowledgedMessageType": message.kind,
        "AcknowledgedMessageId": str(message.id),
        "AcknowledgedMessageSequenceNumber": message.number,
        "IsSequentialMessage": True,
    }
    return Message(kind=ACKNOWLEDGE, payload=json.dumps(content).encode(), flags=SYN | FIN)


def acknowledged(message: Message) -> int:
    """The number of the message that this one acknowledges; raises `ProtocolError` if it cannot be read."""
    try:
        return int(json.loads(message.payload)["AcknowledgedMessageSequenceNumber"])
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise ProtocolError("a Session Manager acknowledgement cannot be read") from None
