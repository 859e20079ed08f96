"""Concatenates Parquet files with the same columns without decoding them: their row groups under one footer.

Decoding and encoding the data again would cost more than writing it did. A footer is a struct in Thrift's compact
protocol; only file offsets and the total row count change.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rollbook.errors import RecordError
from rollbook.protocol.varint import put_varint, read_varint

__all__ = ["concatenate"]

MAGIC = b"PAR1"
TAIL = struct.Struct("<I4s")  # length of the footer before it, magic

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
SIZES = {TRUE: 0, FALSE: 0, BYTE: 1, DOUBLE: 8}  # bytes copied unchanged
LONG_LIST = 15  # in the header of a list: the length follows as a varint

# Field numbers of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
FILE_SCHEMA, FILE_ROWS, FILE_GROUPS, FILE_METADATA = 2, 3, 4, 5
GROUP_COLUMNS, GROUP_ROWS, GROUP_OFFSET, GROUP_ORDINAL = 1, 3, 5, 7
COLUMN_METADATA, COLUMN_OFFSETS = 3, (2, 4, 6)
METADATA_OFFSETS = (9, 10, 11, 14)

Fields = dict[int, tuple[int, Any]]
"""The fields of a struct by number: kind and value. The value of a list is the kind of its items and the items."""


def concatenate(parts: Sequence[Path], target: Path, metadata: Mapping[str, str]) -> None:
    """Write the rows of all parts, in their order, as one file with the key-value metadata `metadata`."""
    joined: Fields = {}
    groups, rows = list[bytes](), 0
    with target.open("wb") as out:
        out.write(MAGIC)
        for part in parts:
            data = part.read_bytes()
            footer, end = _footer(data, part)
            joined = joined or footer
            if footer[FILE_SCHEMA] != joined[FILE_SCHEMA]:
                raise RecordError(f"the columns of {part} differ from those of {parts[0]}")
            for group in footer[FILE_GROUPS][1][1]:
                _move(group, out.tell() - len(MAGIC))
                rows += group[GROUP_ROWS][1]
                groups.append(_packed(group))  # as dicts, the groups of a long run would fill the memory
            out.write(memoryview(data)[len(MAGIC) : end])
        joined[FILE_ROWS] = I64, rows
        joined[FILE_GROUPS] = LIST, (STRUCT, groups)
        pairs = [{1: (BINARY, name.encode()), 2: (BINARY, text.encode())} for name, text in metadata.items()]
        joined[FILE_METADATA] = LIST, (STRUCT, pairs)
        packed = _packed(joined)
        out.write(packed + TAIL.pack(len(packed), MAGIC))


def _footer(data: bytes, path: Path) -> tuple[Fields, int]:
    """The footer of a file, and its offset."""
    length, magic = TAIL.unpack(data[-TAIL.size :]) if len(data) >= TAIL.size else (0, b"")
    begin = len(data) - TAIL.size - length
    if magic != MAGIC or begin < len(MAGIC):
        raise RecordError(f"{path} is not a Parquet file")
    return _struct(data, begin)[0], begin


def _move(group: Fields, by: int) -> None:
    """Move a row group towards the end of the file by this many bytes."""
    _add(group, (GROUP_OFFSET,), by)
    group.pop(GROUP_ORDINAL, None)  # optional, and no longer correct
    for column in group[GROUP_COLUMNS][1][1]:
        _add(column, COLUMN_OFFSETS, by)
        _add(column[COLUMN_METADATA][1], METADATA_OFFSETS, by)


def _add(fields: Fields, numbers: Iterable[int], by: int) -> None:
    for number in numbers:
        kind, value = fields.get(number, (I64, 0))
        if value:  # 0 means absent
            fields[number] = kind, value + by


def _struct(data: bytes, at: int) -> tuple[Fields, int]:
    """The struct at this offset, and the offset after it."""
    fields: Fields = {}
    number = 0
    while head := data[at]:
        at, kind = at + 1, head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(data, at)
        value, at = _value(data, at, kind)
        fields[number] = kind, value
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (I16, I32, I64):
        return _integer(data, at)
    if kind == BINARY:
        length, at = read_varint(data, at)
        return data[at : at + length], at + length
    if kind == STRUCT:
        return _struct(data, at)
    if kind == LIST:
        kind, count, at = data[at] & 15, data[at] >> 4, at + 1
        if count == LONG_LIST:
            count, at = read_varint(data, at)
        items = []
        for _ in range(count):
            item, at = _value(data, at, BYTE if kind in (TRUE, FALSE) else kind)
            items.append(item)
        return (kind, items), at
    size = SIZES[kind]
    return data[at : at + size], at + size


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = (data[at], at + 1) if data[at] < 128 else read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _packed(fields: Fields) -> bytes:
    """The bytes of a struct."""
    out, before = bytearray(), 0
    for number, (kind, value) in sorted(fields.items()):
        if number - before < 16:
            out.append((number - before) << 4 | kind)
        else:
            out.append(kind)
            put_varint(out, number << 1)
        before = number
        _put(out, kind, value)
    return bytes(out + b"\0")


def _put(out: bytearray, kind: int, value: Any) -> None:
    """Append a value; a struct may be packed already."""
    if kind in (I16, I32, I64):
        put_varint(out, value << 1 ^ value >> 63)
    elif kind == BINARY:
        put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        out += value if isinstance(value, bytes) else _packed(value)
    elif kind == LIST:
        kind, items = value
        out.append(min(len(items), LONG_LIST) << 4 | kind)
        if len(items) >= LONG_LIST:
            put_varint(out, len(items))
        for item in items:
            _put(out, BYTE if kind in (TRUE, FALSE) else kind, item)
    else:
        out += value
