"""Readings: one source read once on one host, as it came, with its status and its pages."""

from __future__ import annotations

import dataclasses
import functools
import re
import zlib
from typing import Any, Literal, get_args

from rollbook.errors import ParseError, ProtocolError
from rollbook.protocol.frames import Frame
from rollbook.protocol.plan import LARGEST, Plan
from rollbook.records.interning import shared
from rollbook.sources.base import Source

__all__ = ["READABLE", "Reading", "Status", "parsed", "read_frame", "split_pages"]

Status = Literal["ok", "absent", "denied", "timed-out", "truncated", "failed", "skipped"]
STATUSES: tuple[Status, ...] = get_args(Status)
KNOWN: dict[bytes, Status] = {status.encode(): status for status in STATUSES}
READABLE: tuple[Status, ...] = ("ok", "truncated")
"""Pages of these statuses have text."""
LONGEST_NUMBER = 15  # digits; int() of thousands of them is an error
LONGEST_HEAD, LONGEST_NOTE = 8192, 500
# What a reading is called when its pages differ: an honest defect first, then what there is.
WORST: tuple[Status, ...] = ("timed-out", "truncated", "ok", "failed", "denied", "skipped", "absent")


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """One source read once: what came, when it began on the host's clocks, and how long it took."""

    source: Source
    phase: str
    status: Status
    note: str
    mono: int
    wall: int
    seconds: float
    raw: bytes

    def pages(self) -> dict[str, str]:
        """The text that was read, by path; pages that are absent or unreadable have no entry."""
        return _texts(self.raw)

    def parse(self) -> Any:
        """The typed record; raises `ParseError`. Must not be asked of a reading without a page."""
        return self.source.parse(self.pages())


def read_frame(frame: Frame, plan: Plan) -> Reading:
    """The reading in an `R` or `Z` frame; raises `ProtocolError` for content that is none."""
    payload = _inflated(frame.payload) if frame.kind == "Z" else frame.payload
    head, newline, body = payload.partition(b"\n")
    words = head[:LONGEST_HEAD].decode("utf-8", "backslashreplace").split(" ", 4)
    if not newline or len(words) < 4 or not _is_number(words[0]) or not _is_number(words[3]):
        raise ProtocolError("a reading without a header")
    number, phase, said, micros = int(words[0]), *words[1:4]
    if number >= len(plan.sources):
        raise ProtocolError(f"a reading of source {number}, which was not asked for")
    if len(body) > plan.rooms[number]:
        raise ProtocolError(f"a reading of {len(body)} bytes, more than was asked for")
    found = {status for _, status, _ in split_pages(body)}
    status = said if said in STATUSES else next((worst for worst in WORST if worst in found), "absent")
    note = words[4].strip()[:LONGEST_NOTE] if len(words) > 4 else ""
    return Reading(
        plan.sources[number],
        phase,
        status,  # type: ignore[arg-type] # one of STATUSES by now
        note,
        frame.mono,
        frame.wall,
        int(micros) / 1e6,
        body,
    )


def _is_number(word: str) -> bool:
    return word.isdecimal() and len(word) <= LONGEST_NUMBER


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, LARGEST)
    except zlib.error as error:
        raise ProtocolError(f"a reading that does not inflate: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise ProtocolError("a reading that is too large or cut")
    return text


def split_pages(body: bytes) -> list[tuple[str, Status, bytes]]:
    """Path, status and bytes of each page: `STATUS LENGTH PATH`, a newline, and LENGTH bytes."""
    pages: list[tuple[str, Status, bytes]] = []
    at = 0
    while at < len(body):
        end = body.find(b"\n", at)
        path, status, length = _head(body[at:end] if 0 <= end - at < LONGEST_HEAD else b"")
        at = end + 1 + length
        if at > len(body):
            raise ProtocolError("a page that is cut")
        pages.append((path, status, body[end + 1 : at]))
    return pages


@functools.lru_cache(maxsize=16384)  # the same few pages come again and again, of much the same length
def _head(line: bytes) -> tuple[str, Status, int]:
    words = line.split(b" ", 2)
    if len(words) != 3 or words[0] not in KNOWN or not words[1].isdigit() or len(words[1]) > 9:
        raise ProtocolError("a page without a header")
    name = re.sub(rb"\\(.)", lambda m: b"\n" if m[1] == b"n" else m[1], words[2])
    return name.decode("utf-8", "backslashreplace"), KNOWN[words[0]], int(words[1])


def parsed(reading: Reading) -> tuple[Any, str]:
    """The record and an empty text, or None and why there is none.

    Hosts of a cluster say mostly the same: those that do share one record, which therefore nobody changes.
    """
    record, why = _parsed(reading.source, reading.raw)
    return record, why or ("" if record is not None else reading.note)


@functools.lru_cache(maxsize=1024)
def _parsed(source: Source, raw: bytes) -> tuple[Any, str]:
    pages = _texts(raw)
    try:
        return (shared(source.parse(pages)) if pages else None), ""
    except ParseError as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001 - whatever a parser does, it costs its own fact and no other
        return None, f"{source.name}: the parser failed ({error!r})"


def _texts(raw: bytes) -> dict[str, str]:
    """Text by path; a page of which the limit left nothing has none, which is not the same as empty."""
    found = [page for page in split_pages(raw) if page[1] == "ok" or (page[1] in READABLE and page[2])]
    return {path: data.decode("utf-8", "backslashreplace") for path, _, data in found}
