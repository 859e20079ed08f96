"""Columns passed to DuckDB without a copy, through the Arrow C stream interface (arrow.apache.org/docs/format).

DuckDB accepts any object with `__arrow_c_stream__`. Its C structures are packed here with `struct`, so neither pyarrow
nor NumPy is needed. Tables have hundreds of columns: ctypes structures would make writing them 50 % slower.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Sequence
from typing import Any

__all__ = ["Batches", "Numbers", "Texts"]

# format, name, metadata; flags, number of children; children, dictionary, release, private data
SCHEMA = struct.Struct("@3P2q4P")
# length, null count, offset, numbers of buffers and children; buffers, children, dictionary, release, private data
ARRAY = struct.Struct("@5q5P")
# get_schema, get_next, get_last_error, release, private data
STREAM = struct.Struct("@5P")
POINTER = struct.calcsize("@P")
NULLABLE = 2

_Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Get = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_GetError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def _address(function: Any) -> int:
    # Not ctypes.cast, which makes the function refer to itself.
    return ctypes.c_void_p.from_buffer(function).value or 0


def _releasing(kind: struct.Struct) -> Any:
    """Mark a structure as released; its memory belongs to the stream, and the stream to its `Batches`."""

    def release(address: int) -> None:
        ctypes.memset(address + kind.size - 2 * POINTER, 0, POINTER)

    return _Release(release)


_FUNCTIONS = [_releasing(kind) for kind in (SCHEMA, ARRAY, STREAM)] + [_GetError(lambda _: None)]
RELEASE_SCHEMA, RELEASE_ARRAY, RELEASE_STREAM, GET_ERROR = map(_address, _FUNCTIONS)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Numbers:
    """A column of 64-bit numbers: `l` integers, `g` decimals, `tsn:` nanoseconds since the epoch."""

    def __init__(self, form: str, data: array[Any], nulls: Sequence[tuple[int, int]] = ()) -> None:
        self.form, self.data, self.nulls = form, data, nulls

    def __len__(self) -> int:
        return len(self.data)


class Texts:
    """A column of texts, given as runs of equal values; each distinct value is stored once, None is null."""

    form = "i"

    def __init__(self, runs: Sequence[tuple[str | None, int]]) -> None:
        distinct = {value: number for number, value in enumerate(dict.fromkeys(value for value, _ in runs))}
        self.data = array("i")
        self.nulls: list[tuple[int, int]] = []
        for value, count in runs:
            if value is None:
                self.nulls.append((len(self.data), count))
            self.data.extend(array("i", [distinct[value]]) * count)
        encoded = [b"" if value is None else value.encode("utf-8", "replace") for value in distinct]
        self.offsets = array("i", [0])
        for text in encoded:
            self.offsets.append(self.offsets[-1] + len(text))
        self.text = array("B", b"".join(encoded) or b"\0")

    def __len__(self) -> int:
        return len(self.data)


class _Memory:
    """Builds the structures of a stream and keeps alive the memory they point to."""

    def __init__(self) -> None:
        self._kept: list[array[Any]] = []

    def schema(self, form: str, name: str, children: Sequence[bytes] = (), dictionary: bytes = b"") -> bytes:
        texts = [self._bytes(text.encode("utf-8", "replace") + b"\0") for text in (form, name)]
        about = self._structs(children), self._bytes(dictionary), RELEASE_SCHEMA, 0
        return SCHEMA.pack(*texts, 0, NULLABLE, len(children), *about)

    def column_schema(self, name: str, column: Numbers | Texts) -> bytes:
        return self.schema(column.form, name, dictionary=self.schema("u", "") if isinstance(column, Texts) else b"")

    def values(
        self,
        rows: int,
        absent: int,
        buffers: Sequence[array[Any] | None],
        children: Sequence[bytes] = (),
        dictionary: bytes = b"",
    ) -> bytes:
        places = array("L", [0 if buffer is None else self._place(buffer) for buffer in buffers])
        about = self._place(places), self._structs(children), self._bytes(dictionary), RELEASE_ARRAY, 0
        return ARRAY.pack(rows, absent, 0, len(buffers), len(children), *about)

    def column(self, column: Numbers | Texts) -> bytes:
        absent = sum(count for _, count in column.nulls)
        valid = _bitmap(len(column), column.nulls) if absent else None
        texts = b""
        if isinstance(column, Texts):
            texts = self.values(len(column.offsets) - 1, 0, [None, column.offsets, column.text])
        return self.values(len(column), absent, [valid, column.data], dictionary=texts)

    def _structs(self, structs: Sequence[bytes]) -> int:
        """The address of an array with the addresses of the structures."""
        if not structs:
            return 0
        first, size = self._bytes(b"".join(structs)), len(structs[0])
        return self._place(array("L", range(first, first + size * len(structs), size)))

    def _bytes(self, data: bytes) -> int:
        return self._place(array("B", data)) if data else 0

    def _place(self, data: array[Any]) -> int:
        self._kept.append(data)
        return data.buffer_info()[0]


class Batches:
    """A table for DuckDB; SQL refers to it by the name of the variable. All batches have the same columns, by name."""

    def __init__(self, batches: Sequence[dict[str, Numbers | Texts]]) -> None:
        self._batches, self._streams = batches, list[Any]()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule with a stream of the batches."""
        del requested_schema
        # The stream must not refer to its owner: a reference cycle would keep all data until garbage collection.
        batches, waiting, memory = self._batches, iter(self._batches), _Memory()

        def get_schema(_stream: int, into: int) -> int:
            children = [memory.column_schema(name, column) for name, column in batches[0].items()]
            ctypes.memmove(into, memory.schema("+s", "", children), SCHEMA.size)
            return 0

        def get_next(_stream: int, into: int) -> int:
            batch = next(waiting, None)
            if batch is None:
                ctypes.memset(into, 0, ARRAY.size)  # a released array marks the end of the stream
                return 0
            columns = [memory.column(column) for column in batch.values()]
            rows = len(next(iter(batch.values())))
            ctypes.memmove(into, memory.values(rows, 0, [None], columns), ARRAY.size)
            return 0

        functions = _Get(get_schema), _Get(get_next)
        packed = STREAM.pack(*map(_address, functions), GET_ERROR, RELEASE_STREAM, 0)
        stream = array("B", packed)
        self._streams.append((stream, functions))
        return _new_capsule(stream.buffer_info()[0], b"arrow_array_stream", None)


def _bitmap(rows: int, nulls: Sequence[tuple[int, int]]) -> array[int]:
    """One bit per row, cleared where the value is null."""
    flags = bytearray(b"\1") * (-(-rows // 8) * 8)
    for first, count in nulls:
        flags[first : first + count] = bytes(count)
    return array(
        "B",
        (
            a | b << 1 | c << 2 | d << 3 | e << 4 | f << 5 | g << 6 | h << 7
            for a, b, c, d, e, f, g, h in zip(*(flags[bit::8] for bit in range(8)), strict=True)
        ),
    )
