"""nvme smart-log: errors, wear and warnings of each NVMe drive (NVMe base specification, log page 02h).

Root only. The program is not started on hosts without NVMe drives.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from rollbook.errors import ParseError
from rollbook.sources.base import Facts, Order, Pages, Source, counter, delta, gauge, info, key
from rollbook.sources.text import bounded, integer, last_part

SMART_LOG = Order("each", ("/sys/class/nvme/nvme[0-9]*", "nvme", "smart-log", "-o", "json", "/dev/{}"))


class Health(Facts):
    """One drive. `critical_warning` has one bit per warning; at 100 % used the rated endurance is reached."""

    controller: Annotated[str, key()]
    media_errors: Annotated[int | None, delta()] = None
    critical_warning: Annotated[int | None, delta("bits")] = None
    percentage_used: Annotated[int | None, gauge("%")] = None
    available_spare: Annotated[int | None, gauge("%")] = None
    spare_threshold: Annotated[int | None, info()] = None
    error_log_entries: Annotated[int | None, counter("entries")] = None
    unsafe_shutdowns: Annotated[int | None, counter("events")] = None


# Field names, and those of nvme-cli.
NAMES = {
    "media_errors": "media_errors",
    "critical_warning": "critical_warning",
    "percentage_used": "percent_used",
    "available_spare": "avail_spare",
    "spare_threshold": "spare_thresh",
    "error_log_entries": "num_err_log_entries",
    "unsafe_shutdowns": "unsafe_shutdowns",
}


def count_of(value: Any) -> int | None:
    """A count. Depending on its version, nvme-cli writes 128-bit counts as integers, strings or decimals."""
    if isinstance(value, str):
        return integer(value)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value != int(value)):
        raise ParseError(f"not a count: {value!r}")
    return None if value is None else bounded(int(value))


def parse(pages: Pages) -> list[Health]:
    """One JSON document per drive; a drive that did not respond has no row."""
    rows = []
    for argv, text in pages.items():
        try:
            log = msgspec.json.decode(text, type=dict[str, Any])
        except RecursionError:
            raise ParseError("nested too deeply") from None
        rows.append(Health(last_part(argv), **{ours: count_of(log.get(theirs)) for ours, theirs in NAMES.items()}))
    return rows


SOURCE = Source((SMART_LOG,), parse, list[Health], seconds=10, root=True)
