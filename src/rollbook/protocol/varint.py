"""Unsigned LEB128 numbers, as used in samples and in the footers of Parquet files."""

from __future__ import annotations

from rollbook.errors import ProtocolError

__all__ = ["put_varint", "read_varint"]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the position after it.

    Raises `IndexError` if the data ends inside it, `ProtocolError` if it has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ProtocolError("a number has more than 64 bits")


def put_varint(out: bytearray, value: int) -> None:
    """Append a number."""
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
