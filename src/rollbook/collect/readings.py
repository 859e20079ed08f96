"""Readings: one source read once on one host, as it came, with its status and its pages."""

from __future__ import annotations

import dataclasses
import re
import zlib
from typing import Any, Literal, get_args

from rollbook.collect.frames import Frame
from rollbook.collect.plan import Plan
from rollbook.errors import ParseError, ProtocolError
from rollbook.sources.base import Source

__all__ = ["Reading", "Status", "parsed", "read_frame"]

Status = Literal["ok", "absent", "denied", "timed-out", "truncated", "failed", "skipped"]
STATUSES: tuple[Status, ...] = get_args(Status)
LARGEST = 16 << 20
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
        return {path: text for path, (status, text) in _pages(self.raw).items() if status in ("ok", "truncated")}

    def parse(self) -> Any:
        """The typed record; raises `ParseError`. Must not be asked of a reading without a page."""
        return self.source.parse(self.pages())

    @property
    def has_pages(self) -> bool:
        """Whether there is anything to parse."""
        return any(status in ("ok", "truncated") for status, _ in _pages(self.raw).values())


def read_frame(frame: Frame, plan: Plan) -> Reading:
    """The reading in an `R` or `Z` frame; raises `ProtocolError` for content that is none."""
    payload = _inflated(frame.payload) if frame.kind == "Z" else frame.payload
    head, newline, body = payload.partition(b"\n")
    words = head.decode("utf-8", "backslashreplace").split(" ", 4)
    if not newline or len(words) < 4 or not words[0].isdecimal() or not words[3].isdecimal():
        raise ProtocolError("a reading without a header")
    number, phase, said, micros = words[:4]
    if int(number) >= len(plan.sources):
        raise ProtocolError(f"a reading of source {number[:20]}, which was not asked for")
    found = {status for status, _ in _pages(body).values()}
    status = said if said in STATUSES else next((worst for worst in WORST if worst in found), "absent")
    note = words[4].strip() if len(words) > 4 else ""
    return Reading(
        plan.sources[int(number)],
        phase,
        status,  # type: ignore[arg-type] # one of STATUSES by now
        note,
        frame.mono,
        frame.wall,
        int(micros[:15]) / 1e6,
        body,
    )


def _inflated(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, LARGEST)
    except zlib.error as error:
        raise ProtocolError(f"a reading that does not inflate: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise ProtocolError("a reading that is too large or cut")
    return text


def _pages(body: bytes) -> dict[str, tuple[Status, str]]:
    """Pages are `STATUS LENGTH PATH`, a newline, and LENGTH bytes."""
    pages: dict[str, tuple[Status, str]] = {}
    at = 0
    while at < len(body):
        end = body.find(b"\n", at)
        words = body[at:end].split(b" ", 2) if end >= 0 else []
        status = words[0].decode("ascii", "replace") if words else ""
        if len(words) != 3 or status not in STATUSES or not words[1].isdigit() or len(words[1]) > 9:
            raise ProtocolError("a page without a header")
        length = int(words[1])
        if end + 1 + length > len(body):
            raise ProtocolError("a page that is cut")
        path = re.sub(rb"\\(.)", lambda m: b"\n" if m[1] == b"n" else m[1], words[2]).decode(
            "utf-8", "backslashreplace"
        )
        pages[path] = (status, body[end + 1 : end + 1 + length].decode("utf-8", "backslashreplace"))
        at = end + 1 + length
    return pages


def parsed(reading: Reading) -> tuple[Any, str]:
    """The record and an empty text, or None and why there is none."""
    if not reading.has_pages:
        return None, reading.note
    try:
        return reading.parse(), ""
    except ParseError as error:
        return None, str(error)
