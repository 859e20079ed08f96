"""A host returned no data at the start.

Why: Sums, minimums and comparisons do not include it, although the run may have used it.
Example: refused: key rejected (node17)
Fix: Correct the cause that the finding names, or remove the host from the list and from the run.
Reference: rollbook hosts --check
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.hosts import fold
from rollbook.records.causes import group_by_status
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "host-missing", "fail", ()


def check(run: RunData) -> Iterator[Finding]:
    """Hosts without data; one finding per cause."""
    for status, reason, names in group_by_status(host for host in run.start if not host.gave_data):
        yield Finding(message=f"{status}: {reason} ({fold(names)})", hosts=names, evidence={"status": status})
