"""Messages on the wire: the documented layout, and `ProtocolError` for all other bytes."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.aws import messages
from rollbook.aws.messages import Message, acknowledge, acknowledged, decode, encode
from rollbook.errors import ProtocolError


def test_layout() -> None:
    """Offsets and sizes match the real client and agent; the halves of the UUID are swapped."""
    marker = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
    message = Message(
        kind=messages.INPUT, number=-2, payload=b"abc", payload_type=1, flags=3, id=marker, created_ms=1_700_000_000_000
    )
    data = encode(message)
    assert data[:4] == (116).to_bytes(4, "big")
    assert data[4:36] == b"input_stream_data".ljust(32)
    assert data[36:40] == (1).to_bytes(4, "big")
    assert data[40:48] == (1_700_000_000_000).to_bytes(8, "big")
    assert data[48:56] == (-2).to_bytes(8, "big", signed=True)
    assert data[56:64] == (3).to_bytes(8, "big")
    assert data[64:80] == bytes.fromhex("8899aabbccddeeff0011223344556677")
    assert data[112:120] == (1).to_bytes(4, "big") + (3).to_bytes(4, "big")
    assert data[120:] == b"abc"
    assert decode(data) == message


@given(st.binary(max_size=300), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1))
def test_round_trip(payload: bytes, number: int, payload_type: int) -> None:
    """What is encoded decodes to the same message."""
    message = Message(kind=messages.OUTPUT, number=number, payload=payload, payload_type=payload_type)
    assert decode(encode(message)) == message


@given(st.binary(max_size=400))
def test_arbitrary_bytes(data: bytes) -> None:
    """Bytes that are not a message raise `ProtocolError`."""
    with pytest.raises(ProtocolError):
        decode(data)


@given(st.integers(0, 122), st.integers(1, 255))
def test_damaged_messages(place: int, flip: int) -> None:
    """A changed payload or length is always detected."""
    data = bytearray(encode(Message(kind=messages.OUTPUT, payload=b"xyz", payload_type=1)))
    data[place] ^= flip
    try:
        found = decode(bytes(data))
    except ProtocolError:
        return
    assert found.payload == b"xyz"


def test_acknowledgement() -> None:
    """An acknowledgement contains number, type and id of its message; malformed ones raise `ProtocolError`."""
    message = Message(kind=messages.OUTPUT, number=7, payload=b"x", payload_type=1)
    sent = decode(encode(acknowledge(message)))
    assert acknowledged(sent) == 7
    content = json.loads(sent.payload)
    assert content["AcknowledgedMessageType"] == messages.OUTPUT
    assert content["AcknowledgedMessageId"] == str(message.id)
    infinite = b'{"AcknowledgedMessageSequenceNumber": 1e999}'
    for payload in (b"", b"[]", b"{}", b'{"AcknowledgedMessageType": 1}', b"\xff", infinite):
        with pytest.raises(ProtocolError):
            acknowledged(Message(kind=messages.ACKNOWLEDGE, payload=payload))
