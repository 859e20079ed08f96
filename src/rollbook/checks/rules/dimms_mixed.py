"""The DIMMs of one host differ in size or speed.

Why: All DIMMs run at the speed of the slowest, and unevenly populated channels are interleaved only in part: the
memory bandwidth drops although the total size looks right.
Example: dimms: size_mib 15 × 65536 MiB, 1 × 32768 MiB (node17)
Fix: Use equal DIMMs in the slots that the board's manual recommends; `dmidecode -t 17` lists the current ones.
Reference: SMBIOS 3, type 17
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.records.findings import Finding
from rollbook.sources.dimms import Slot

ID, SEVERITY, NEEDS = "dimms-mixed", "warn", (Slot,)
UNITS = {"size_mib": "MiB", "configured_mts": "MT/s"}


def check(run: RunData) -> Iterator[Finding]:
    """Used slots of one memory type with different values."""
    found: dict[tuple[str, str | None, str], Counter[int]] = {}
    for host, slot in run.each(Slot):
        for field in UNITS:
            value = getattr(slot, field)
            if value and slot.size_mib:
                found.setdefault((host.name, slot.memory_type, field), Counter())[value] += 1
    for (name, _, field), tally in found.items():
        if len(tally) > 1:
            parts = ", ".join(f"{count} × {value} {UNITS[field]}" for value, count in tally.most_common())
            evidence = {"field": field, "dimms": {str(value): count for value, count in tally.items()}}
            yield Finding(message=f"dimms: {field} {parts} ({name})", hosts=[name], evidence=evidence)
