"""The body of a request of Prometheus' remote write 1.0: a small protobuf message in a snappy block.

The message is encoded here, because it has three kinds of fields, and the block has literals only, which every decoder
reads. So neither needs a dependency. The labels of a series are sent once for all its samples in a request.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from rollbook.protocol.varint import put_varint

__all__ = ["Batch", "encode_labels", "encode_time", "snappy"]

VALUE = struct.Struct("<Bd")  # field 1 of a sample
STALE = struct.pack("<BQ", 0x09, 0x7FF0000000000002)  # the NaN that marks the end of a series
LITERAL = 1 << 16  # bytes


class Batch:
    """Samples for one request, grouped by series. `count` is the number of values, `size` about that of the body."""

    def __init__(self) -> None:
        self.count = self.size = 0
        self._series: dict[bytes, list[bytes]] = {}

    def add(self, labels: bytes, time: bytes, value: float) -> None:
        """Add a value of the series with these labels; the values of a series must be in the order of their times."""
        self._add(labels, VALUE.pack(0x09, value) + time)
        self.count += 1

    def end(self, labels: bytes, time: bytes) -> None:
        """End a series: without that, servers repeat its last value for minutes."""
        self._add(labels, STALE + time)

    def body(self) -> bytes:
        """The message."""
        return b"".join(_field(0x0A, labels + b"".join(samples)) for labels, samples in self._series.items())

    def _add(self, labels: bytes, sample: bytes) -> None:
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = []
            self.size += len(labels)
        found.append(b"\x12%c%b" % (len(sample), sample))
        self.size += len(sample)


def encode_labels(labels: Mapping[str, str]) -> bytes:
    """The labels of a series, in the order of their names; empty ones mean the same as none and are left out."""
    return b"".join(
        _field(0x0A, _text(0x0A, name) + _text(0x12, labels[name])) for name in sorted(labels) if labels[name]
    )


def encode_time(milliseconds: int) -> bytes:
    """The time of a sample, since 1970."""
    out = bytearray([0x10])
    put_varint(out, milliseconds)
    return bytes(out)


def snappy(data: bytes) -> bytes:
    """The data as a snappy block of literals."""
    out = bytearray()
    put_varint(out, len(data))
    for at in range(0, len(data), LITERAL):
        piece = data[at : at + LITERAL]
        out += b"\xf4" + (len(piece) - 1).to_bytes(2, "little")
        out += piece
    return bytes(out)


def _text(tag: int, text: str) -> bytes:
    return _field(tag, text.encode("utf-8", "replace"))


def _field(tag: int, data: bytes) -> bytes:
    """A field that starts with its length."""
    out = bytearray([tag])
    put_varint(out, len(data))
    return bytes(out + data)
