"""Parquet files of the same columns put together as they are: row group after row group, under one footer.

To read the data again only to write it once more would cost more than it did to make it. A footer is a struct in
Thrift's compact protocol; of all it says, only places in the file and counts of the whole change.
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
TAIL = struct.Struct("<I4s")  # length of the footer before it, and the magic once more

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 12
SIZES = {TRUE: 0, FALSE: 0, BYTE: 1, DOUBLE: 8}  # bytes that are kept as they are
MANY = 15  # in the head of a list: its length follows

# Numbers of fields: of the file, of a row group, of a column in it, and of what is said of that column.
FILE_SCHEMA, FILE_ROWS, FILE_GROUPS, FILE_KEPT = 2, 3, 4, 5
GROUP_COLUMNS, GROUP_ROWS, GROUP_PLACE, GROUP_ORDINAL = 1, 3, 5, 7
COLUMN_ABOUT, COLUMN_PLACES = 3, (2, 4, 6)
ABOUT_PLACES = (9, 10, 11, 14)

Fields = dict[int, tuple[int, Any]]
"""The fields of a struct, by number: kind and value. The value of a list is the kind of its items, and the items."""


def concatenate(parts: Sequence[Path], target: Path, kept: Mapping[str, str]) -> None:
    """Write the rows of all parts, in their order, as one file; `kept` is the metadata it has of its own."""
    whole: Fields = {}
    groups, rows = list[bytes](), 0
    with target.open("wb") as out:
        out.write(MAGIC)
        for part in parts:
            data = part.read_bytes()
            footer, end = _footer(data, part)
            whole = whole or footer
            if footer[FILE_SCHEMA] != whole[FILE_SCHEMA]:
                raise RecordError(f"{part} has other columns than {parts[0]}")
            for group in footer[FILE_GROUPS][1][1]:
                _move(group, out.tell() - len(MAGIC))
                rows += group[GROUP_ROWS][1]
                groups.append(_packed(group))  # as fields, those of a long run would take all memory
            out.write(memoryview(data)[len(MAGIC) : end])
        whole[FILE_ROWS] = I64, rows
        whole[FILE_GROUPS] = LIST, (STRUCT, groups)
        pairs = [{1: (BINARY, name.encode()), 2: (BINARY, text.encode())} for name, text in kept.items()]
        whole[FILE_KEPT] = LIST, (STRUCT, pairs)
        packed = _packed(whole)
        out.write(packed + TAIL.pack(len(packed), MAGIC))


def _footer(data: bytes, path: Path) -> tuple[Fields, int]:
    """The footer of a file, and where it begins."""
    length, magic = TAIL.unpack(data[-TAIL.size :]) if len(data) >= TAIL.size else (0, b"")
    begin = len(data) - TAIL.size - length
    if magic != MAGIC or begin < len(MAGIC):
        raise RecordError(f"{path} is no Parquet file")
    return _struct(data, begin)[0], begin


def _move(group: Fields, by: int) -> None:
    """Have a row group begin that much later in the file."""
    _add(group, (GROUP_PLACE,), by)
    group.pop(GROUP_ORDINAL, None)  # it need not say which of the file's it is
    for column in group[GROUP_COLUMNS][1][1]:
        _add(column, COLUMN_PLACES, by)
        _add(column[COLUMN_ABOUT][1], ABOUT_PLACES, by)


def _add(fields: Fields, places: Iterable[int], by: int) -> None:
    for number in places:
        kind, value = fields.get(number, (I64, 0))
        if value:  # 0 says that there is none
            fields[number] = kind, value + by


def _struct(data: bytes, at: int) -> tuple[Fields, int]:
    """The struct that begins there, and where it ends."""
    fields: Fields = {}
    number = 0
    while head := data[at]:
        at, kind = at + 1, head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, at = _whole(data, at)
        value, at = _value(data, at, kind)
        fields[number] = kind, value
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (I16, I32, I64):
        return _whole(data, at)
    if kind == BINARY:
        length, at = read_varint(data, at)
        return data[at : at + length], at + length
    if kind == STRUCT:
        return _struct(data, at)
    if kind == LIST:
        kind, count, at = data[at] & 15, data[at] >> 4, at + 1
        if count == MANY:
            count, at = read_varint(data, at)
        items = []
        for _ in range(count):
            item, at = _value(data, at, BYTE if kind in (TRUE, FALSE) else kind)
            items.append(item)
        return (kind, items), at
    size = SIZES[kind]
    return data[at : at + size], at + size


def _whole(data: bytes, at: int) -> tuple[int, int]:
    value, at = (data[at], at + 1) if data[at] < 128 else read_varint(data, at)
    return value >> 1 ^ -(value & 1), at


def _packed(fields: Fields) -> bytes:
    """A struct as bytes."""
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
    """Append a value; structs may be packed already."""
    if kind in (I16, I32, I64):
        put_varint(out, value << 1 ^ value >> 63)
    elif kind == BINARY:
        put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        out += value if isinstance(value, bytes) else _packed(value)
    elif kind == LIST:
        kind, items = value
        out.append(min(len(items), MANY) << 4 | kind)
        if len(items) >= MANY:
            put_varint(out, len(items))
        for item in items:
            _put(out, BYTE if kind in (TRUE, FALSE) else kind, item)
    else:
        out += value
