"""A Lustre client is not connected to a target, or says that it is not healthy.

Why: Files with stripes on that target hang until it comes back.
Example: scratch-OST0003 is DISCONN (node17)
Fix: lctl ping the server from the host; check its network, and the server's log for evictions.
Reference: lctl-get_param(8)
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.subject import Subject
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding
from rollbook.sources.lustre import Lustre

ID, SEVERITY, NEEDS = "lustre-target-down", "fail", (Lustre,)
CONNECTED = ("FULL", "IDLE")


def check(run: Subject) -> Iterator[Finding]:
    """Targets that are not connected, and clients that are not healthy, like ones together."""
    found: dict[str, list[str]] = {}
    for host, lustre in run.each(Lustre):
        for target, state in lustre.imports.items():
            if state not in CONNECTED:
                found.setdefault(f"{target} is {state}", []).append(host.name)
        if lustre.health is not None and lustre.health != "healthy":
            found.setdefault(f"health: {lustre.health}", []).append(host.name)
    for text, names in found.items():
        yield Finding(message=f"{text} ({fold(names)})", hosts=names)
    silent = [host.name for host, lustre in run.each(Lustre) if not lustre.imports]
    if silent:
        raise CannotTell(f"no connection seen on {fold(silent)}: only root may read them")
