"""Authentication of what an agent and its collector send each other: HMAC-SHA256 with keys from a shared token."""

import struct

TYPE_CHECKING = False  # importing typing is too expensive on every host
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CODE = 16  # bytes of an authentication code, the start of an HMAC
LARGEST = (4 << 20) + 64  # bytes of a message: the largest frame with its header


def sha256() -> "Callable[[bytes], Any]":
    """The hash function. The C modules below hashlib import in a fraction of the time that hashlib takes."""
    for name in ("_sha2", "_sha256", "hashlib"):  # Python 3.12 and later, earlier, and builds without either
        try:
            found: "Callable[[bytes], Any]" = __import__(name).sha256
        except ImportError:
            continue
        return found
    raise ImportError("no module with sha256")


def same(one: bytes, other: bytes) -> bool:
    """Whether two codes are equal, in a time that does not depend on where they differ."""
    from _operator import _compare_digest  # what hmac offers, which imports hashlib

    return bool(_compare_digest(one, other))


class Key:
    """A key for HMAC-SHA256 (RFC 2104)."""

    def __init__(self, key: bytes) -> None:
        digest = sha256()
        block = (digest(key).digest() if len(key) > 64 else key).ljust(64, b"\0")
        self.inner = digest(bytes(byte ^ 0x36 for byte in block))
        self.outer = digest(bytes(byte ^ 0x5C for byte in block))

    def code(self, *parts: bytes) -> bytes:
        """The HMAC of the parts, joined."""
        inner, outer = self.inner.copy(), self.outer.copy()
        for part in parts:
            inner.update(part)
        outer.update(inner.digest())
        return bytes(outer.digest())


def derive(token: bytes, *words: bytes) -> bytes:
    """A proof or a key for one purpose: the HMAC of words that contain no blanks."""
    return Key(token).code(b" ".join(words))


def instance_of(token: bytes, secret: bytes) -> bytes:
    """What distinguishes an agent from all others that have the token; it does not disclose the secret of its lines."""
    return derive(token, b"instance", secret)[:8].hex().encode()


def line_code(token: bytes, tag: bytes) -> "Callable[[bytes, bytes], bytes]":
    """What makes the codes of frames that are sent as lines with this tag, from their head and payload."""
    key = Key(derive(token, b"lines-key", tag))
    return lambda head, payload: key.code(head, b"\n", payload)[:CODE]


class Seal:
    """One direction of a connection: messages of length, code and data. The code covers their number, too.

    A message that was injected, altered, repeated, left out or moved raises `ConnectionError` in `open`.
    """

    def __init__(self, key: bytes) -> None:
        self.key, self.count, self.buffer = Key(key), 0, bytearray()

    def code(self, data: bytes) -> bytes:
        self.count += 1
        return self.key.code(struct.pack(">QI", self.count, len(data)), data)[:CODE]

    def seal(self, data: bytes) -> bytes:
        """The data as a message."""
        return struct.pack(">I", len(data)) + self.code(data) + data

    def open(self, piece: bytes) -> bytes:
        """The data of the messages that are complete with this piece of the stream."""
        self.buffer += piece
        data = b""
        while len(self.buffer) >= 4:
            size = struct.unpack_from(">I", self.buffer)[0]
            end = 4 + CODE + size
            if size > LARGEST:
                raise ConnectionError("a message is too long")
            if len(self.buffer) < end:
                break
            message = bytes(self.buffer[4 + CODE : end])
            if not same(bytes(self.buffer[4 : 4 + CODE]), self.code(message)):
                raise ConnectionError("a message failed authentication")
            del self.buffer[:end]
            data += message
        return data
