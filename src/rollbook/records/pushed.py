"""What a push achieved, as stored beside the journal and in the metadata of a record."""

from __future__ import annotations

from pathlib import Path

import msgspec

from rollbook.errors import RecordError
from rollbook.files import write_file
from rollbook.records.document import encode
from rollbook.records.reading import UNDECODABLE, read_regular

__all__ = ["Pushed", "read_pushed", "write_pushed"]

FILE = "push.json"
LARGEST = 1 << 16  # bytes


class Pushed(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The number of values that the receiver accepted (`sent`) and did not accept (`lost`), left out if unknown.

    `url` is its address without secrets, `reason` that of the latest loss. A value is one metric of a host or device at
    one time.
    """

    url: str
    sent: int | None = None
    lost: int | None = None
    reason: str = ""

    @property
    def note(self) -> str:
        """What a reader of the record must know; empty if nothing was lost."""
        if self.sent is None or self.lost is None:
            return f"push to {self.url}: {self.reason}"
        if not self.lost:
            return ""
        return f"push to {self.url}: {self.lost} of {self.sent + self.lost} values were lost: {self.reason}"


def write_pushed(directory: Path, pushed: Pushed) -> None:
    """Write the result into the directory of the journal; raises `RecordError`."""
    write_file(directory / FILE, encode(pushed))


def read_pushed(directory: Path, url: str) -> Pushed:
    """The result of a push; without a readable one, numbers are unknown and the reason says so."""
    try:
        return msgspec.json.decode(read_regular(directory / FILE, LARGEST), type=Pushed)
    except (RecordError, *UNDECODABLE):
        return Pushed(url=url, reason="its sender ended without a result, so the losses are unknown")
