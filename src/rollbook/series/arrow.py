"""Columns handed to DuckDB without a copy, through the Arrow C stream interface (arrow.apache.org/docs/format).

DuckDB takes any object with `__arrow_c_stream__`; the structures behind it are small enough to be filled with ctypes,
so neither pyarrow nor NumPy is needed.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import Any

__all__ = ["Batches", "Numbers", "Texts"]

NULLABLE = 2


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


class _Stream(ctypes.Structure):
    pass


_P = ctypes.POINTER
_ReleaseSchema = ctypes.CFUNCTYPE(None, _P(_Schema))
_ReleaseArray = ctypes.CFUNCTYPE(None, _P(_Array))
_ReleaseStream = ctypes.CFUNCTYPE(None, _P(_Stream))
_GetSchema = ctypes.CFUNCTYPE(ctypes.c_int, _P(_Stream), _P(_Schema))
_GetNext = ctypes.CFUNCTYPE(ctypes.c_int, _P(_Stream), _P(_Array))
_GetError = ctypes.CFUNCTYPE(ctypes.c_char_p, _P(_Stream))

_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", _P(_P(_Schema))),
    ("dictionary", _P(_Schema)),
    ("release", _ReleaseSchema),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", _P(ctypes.c_void_p)),
    ("children", _P(_P(_Array))),
    ("dictionary", _P(_Array)),
    ("release", _ReleaseArray),
    ("private_data", ctypes.c_void_p),
]
_Stream._fields_ = [
    ("get_schema", _GetSchema),
    ("get_next", _GetNext),
    ("get_last_error", _GetError),
    ("release", _ReleaseStream),
    ("private_data", ctypes.c_void_p),
]


def _release_schema(schema: Any) -> None:
    schema.contents.release = _ReleaseSchema()


def _release_array(column: Any) -> None:
    column.contents.release = _ReleaseArray()


def _release_stream(stream: Any) -> None:
    stream.contents.release = _ReleaseStream()


# Everything is kept alive by the stream itself, and that by its `Batches`: releasing is no more than saying so.
RELEASE_SCHEMA = _ReleaseSchema(_release_schema)
RELEASE_ARRAY = _ReleaseArray(_release_array)
RELEASE_STREAM = _ReleaseStream(_release_stream)

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Numbers:
    """A column of 64-bit numbers: `l` whole, `g` decimal, `tsn:` nanoseconds since the epoch."""

    def __init__(self, form: str, data: array[Any], nulls: Sequence[tuple[int, int]] = ()) -> None:
        self.form, self.data, self.nulls = form, data, nulls

    def __len__(self) -> int:
        return len(self.data)


class Texts:
    """A column of texts, given as runs of equal ones, each distinct one stored once; None is absent."""

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


class _Structures:
    """Makes the structures of a stream, and keeps them and what they point to."""

    def __init__(self) -> None:
        self._kept: list[Any] = []

    def schema(self, name: str, column: Numbers | Texts) -> _Schema:
        schema = _Schema()
        self.fill_schema(schema, column.form.encode(), name.encode("utf-8", "replace"), [])
        if isinstance(column, Texts):
            texts = _Schema()
            self.fill_schema(texts, b"u", b"", [])
            schema.dictionary = ctypes.pointer(texts)
        return schema

    def fill_schema(self, schema: Any, form: bytes, name: bytes, children: list[_Schema]) -> None:
        pointers = (_P(_Schema) * len(children))(*map(ctypes.pointer, children))
        schema.format, schema.name, schema.metadata, schema.flags = form, name, None, NULLABLE
        schema.n_children, schema.children, schema.dictionary = len(children), pointers, None
        schema.release, schema.private_data = RELEASE_SCHEMA, None
        self._kept.append((schema, form, name, children, pointers))

    def column(self, column: Numbers | Texts) -> _Array:
        found = _Array()
        absent = sum(count for _, count in column.nulls)
        valid = _bitmap(len(column), column.nulls) if absent else None
        self.fill_array(found, len(column), absent, [valid, column.data], [])
        if isinstance(column, Texts):
            texts = _Array()
            self.fill_array(texts, len(column.offsets) - 1, 0, [None, column.offsets, column.text], [])
            found.dictionary = ctypes.pointer(texts)
        return found

    def fill_array(
        self, into: Any, rows: int, absent: int, buffers: list[array[Any] | None], children: list[_Array]
    ) -> None:
        places = [None if buffer is None else buffer.buffer_info()[0] for buffer in buffers]
        addresses = (ctypes.c_void_p * len(buffers))(*places)
        pointers = (_P(_Array) * len(children))(*map(ctypes.pointer, children))
        into.length, into.null_count, into.offset = rows, absent, 0
        into.n_buffers, into.buffers = len(buffers), addresses
        into.n_children, into.children, into.dictionary = len(children), pointers, None
        into.release, into.private_data = RELEASE_ARRAY, None
        self._kept.append((into, buffers, addresses, children, pointers))


class Batches:
    """A table for DuckDB, to be named in SQL by the variable that holds it. Batches have the same columns, by name."""

    def __init__(self, batches: Sequence[dict[str, Numbers | Texts]]) -> None:
        self._batches, self._streams = batches, list[_Stream]()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule with a stream of the batches."""
        del requested_schema
        # The stream does not refer to what keeps it: in a ring, all the data would stay until Python looks for garbage.
        batches, waiting, made = self._batches, iter(self._batches), _Structures()

        def get_schema(_stream: Any, into: Any) -> int:
            children = [made.schema(name, column) for name, column in batches[0].items()]
            made.fill_schema(into.contents, b"+s", b"", children)
            return 0

        def get_next(_stream: Any, into: Any) -> int:
            batch = next(waiting, None)
            if batch is None:
                into.contents.release = _ReleaseArray()
                return 0
            columns = [made.column(column) for column in batch.values()]
            rows = len(next(iter(batch.values())))
            made.fill_array(into.contents, rows, 0, [None], columns)
            return 0

        stream = _Stream(_GetSchema(get_schema), _GetNext(get_next), _GetError(lambda _: None), RELEASE_STREAM, None)
        self._streams.append(stream)
        return _new_capsule(ctypes.addressof(stream), b"arrow_array_stream", None)


def _bitmap(rows: int, nulls: Sequence[tuple[int, int]]) -> array[int]:
    """A bit for each row, unset where the value is absent."""
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
