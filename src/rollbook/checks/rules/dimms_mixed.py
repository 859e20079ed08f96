"""The DIMMs of one host differ in size or speed.

Why: All run at the speed of the slowest, and memory that is not spread evenly over the channels is only in part
interleaved: bandwidth falls although the total looks right.
Example: size_mib: 15 × 65536 MiB, 1 × 32768 MiB (node17)
Fix: Put like DIMMs into the slots that the board's manual names; dmidecode -t 17 lists what is there.
Reference: SMBIOS 3, type 17
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.records.findings import Finding
from rollbook.sources.dimms import Slot

ID, SEVERITY, NEEDS = "dimms-mixed", "warn", (Slot,)
UNITS = {"size_mib": "MiB", "configured_mts": "MT/s"}


def check(run: Subject) -> Iterator[Finding]:
    """Slots in use of one type of memory with more than one value; flash and HBM beside them are types of their own."""
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
            yield Finding(message=f"{field}: {parts} ({name})", hosts=[name], evidence=evidence)
