"""Readings: one source read once on one host, with its status and pages."""

from __future__ import annotations

import dataclasses
import functools
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from rollbook.errors import ParseError, ProtocolError
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import LARGEST, Plan
from rollbook.records.interning import intern_strings
from rollbook.sources.base import Source

__all__ = [
    "READABLE",
    "Page",
    "Reading",
    "Status",
    "page_texts",
    "parse_facts",
    "read_frame",
    "read_header",
    "readable_pages",
    "split_pages",
]

Status = Literal["ok", "absent", "denied", "timed-out", "truncated", "failed", "skipped"]
STATUSES: tuple[Status, ...] = get_args(Status)
BY_BYTES: dict[bytes, Status] = {status.encode(): status for status in STATUSES}
READABLE: tuple[Status, ...] = ("ok", "truncated")
"""Statuses of pages that have text."""
Page = tuple[str, Status, bytes]
"""Path, status and bytes of a page."""
LONGEST_NUMBER = 15  # digits; int() raises an error for thousands of them
LONGEST_HEAD, LONGEST_NOTE = 8192, 500
MAX_PAGES = 1 << 18  # of a reading; a thousand disks have 20,000
# The status of a reading whose pages differ is the first of these: defects, then what was read, then other causes.
WORST: tuple[Status, ...] = ("timed-out", "truncated", "ok", "failed", "denied", "skipped", "absent")


class Header(NamedTuple):
    """The first line of a reading: `SOURCE PHASE STATUS MICROSECONDS NOTE`. The status is `-` if the pages have it."""

    source: int
    phase: str
    status: str
    seconds: float
    note: str


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """One source read once: its pages, when it started on the host's clocks, and how long it took.

    `starved` means that pages are missing because the agent had no free descriptors, memory or processes.
    """

    source: Source
    phase: str
    status: Status
    note: str
    mono: int
    wall: int
    seconds: float
    raw: bytes
    starved: bool = False

    def pages(self) -> dict[str, str]:
        """The text of each page, by path; absent and unreadable pages have no entry."""
        return page_texts(self.raw)

    def parse(self) -> Any:
        """The typed facts; raises `ParseError`. Must not be called for a reading without pages."""
        return self.source.parse(self.pages())


def read_frame(frame: Frame, plan: Plan) -> Reading:
    """The reading in an `R` or `Z` frame; raises `ProtocolError` if it is malformed or not in the plan."""
    payload = _inflate(frame.payload) if frame.kind == "Z" else frame.payload
    header = _parse_header(payload)
    if header.source >= len(plan.sources):
        raise ProtocolError(f"a reading of source {header.source}, which is not in the plan")
    body = payload[payload.index(b"\n") + 1 :]
    if len(body) > plan.size_limits[header.source]:
        raise ProtocolError(f"a reading of {len(body)} bytes exceeds the limit of its source")
    pages = split_pages(body)
    found = {status for _, status, _ in pages}
    worst: Status = next((status for status in WORST if status in found), "absent")
    status, note = BY_BYTES.get(header.status.encode(), worst), header.note
    if shortage := _shortage(pages):
        status, note = "failed", shortage
    source = plan.sources[header.source]
    return Reading(source, header.phase, status, note, frame.mono, frame.wall, header.seconds, body, bool(shortage))


def _shortage(pages: Sequence[Page]) -> str:
    """The reason why a page could not be read for lack of resources, or an empty string.

    Only such pages are failed and have text: an agent without free descriptors knows nothing about the host.
    """
    reasons = (data for _, status, data in pages if status == "failed" and data)
    return next(reasons, b"")[:LONGEST_NOTE].decode("utf-8", "backslashreplace")


def read_header(frame: Frame) -> Header:
    """The header of the reading in an `R` or `Z` frame, without reading its pages; raises `ProtocolError`."""
    if frame.kind != "Z":
        return _parse_header(frame.payload)
    try:
        return _parse_header(zlib.decompressobj().decompress(frame.payload, LONGEST_HEAD))
    except zlib.error as error:
        raise ProtocolError(f"a reading cannot be inflated: {error}") from error


def _parse_header(payload: bytes) -> Header:
    end = payload.find(b"\n", 0, LONGEST_HEAD)
    fields = payload[: max(0, end)].decode("utf-8", "backslashreplace").split(" ", 4)
    if len(fields) < 4 or not _is_number(fields[0]) or not _is_number(fields[3]):
        raise ProtocolError("a reading has no valid header")
    note = fields[4].strip()[:LONGEST_NOTE] if len(fields) > 4 else ""
    return Header(int(fields[0]), fields[1], fields[2], int(fields[3]) / 1e6, note)


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= LONGEST_NUMBER


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, LARGEST)
    except zlib.error as error:
        raise ProtocolError(f"a reading cannot be inflated: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise ProtocolError("a reading is too large or truncated")
    return text


def split_pages(body: bytes) -> list[Page]:
    """The pages of a reading: for each `STATUS LENGTH PATH`, a newline, and LENGTH bytes."""
    pages: list[Page] = []
    at = 0
    while at < len(body):
        end = body.find(b"\n", at)
        path, status, length = _page_header(body[at:end] if 0 <= end - at < LONGEST_HEAD else b"")
        at = end + 1 + length
        if at > len(body) or len(pages) >= MAX_PAGES:
            raise ProtocolError("a page is truncated, or there are too many")
        pages.append((path, status, body[end + 1 : at]))
    return pages


@functools.lru_cache(maxsize=16384)  # the same pages are read again and again, with similar lengths
def _page_header(line: bytes) -> tuple[str, Status, int]:
    fields = line.split(b" ", 2)
    if len(fields) != 3 or fields[0] not in BY_BYTES or not fields[1].isdigit() or len(fields[1]) > 9:
        raise ProtocolError("a page has no valid header")
    name = re.sub(rb"\\(.)", lambda m: b"\n" if m[1] == b"n" else m[1], fields[2])
    return name.decode("utf-8", "backslashreplace"), BY_BYTES[fields[0]], int(fields[1])


def parse_facts(reading: Reading) -> tuple[Any, str]:
    """The facts and an empty string, or None and the reason.

    Hosts with equal readings share one object, which must not be changed.
    """
    facts, why = _parse_cached(reading.source, reading.raw)
    return facts, why or ("" if facts is not None else reading.note)


@functools.lru_cache(maxsize=1024)
def _parse_cached(source: Source, raw: bytes) -> tuple[Any, str]:
    pages = page_texts(raw)
    try:
        return (intern_strings(source.parse(pages)) if pages else None), ""
    except ParseError as error:
        return None, str(error)


def readable_pages(pages: Iterable[Page]) -> dict[str, bytes]:
    """The bytes of pages that were read, by path.

    A truncated page without a complete line has no entry: it is unknown, not empty.
    """
    return {path: data for path, status, data in pages if status == "ok" or (data and status in READABLE)}


def page_texts(body: bytes) -> dict[str, str]:
    """The text of each page of a reading that was read, by path."""
    pages = readable_pages(split_pages(body))
    return {path: data.decode("utf-8", "backslashreplace") for path, data in pages.items()}
