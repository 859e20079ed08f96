"""A Lustre client is not connected to a target, or reports that it is not healthy.

Why: Access to files with stripes on that target blocks until the target is back.
Example: lustre: target scratch-OST0003 is DISCONN (node17)
Fix: On the host, run `lctl ping NID` with the server's NID; check the network, and the server's log for evictions.
Reference: lctl-get_param(8)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.checks.text import findings_by_text
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.lustre import Lustre

ID, SEVERITY, NEEDS = "lustre-target-down", "fail", (Lustre,)
CONNECTED = ("FULL", "IDLE")


def check(run: RunData) -> Iterator[Finding]:
    """Targets that are not connected and clients that are not healthy; one finding per state."""
    yield from findings_by_text((text, host.name) for host, lustre in run.each(Lustre) for text in _problems(lustre))
    hidden = [host.name for host, lustre in run.each(Lustre) if not lustre.imports]
    if hidden:
        raise CannotTell(f"connections readable only by root on {fold(hidden)}")


def _problems(lustre: Lustre) -> Iterator[str]:
    for target, state in lustre.imports.items():
        if state not in CONNECTED:
            yield f"lustre: target {target} is {state}"
    if lustre.health is not None and lustre.health != "healthy":
        yield f"lustre: health {lustre.health}"
