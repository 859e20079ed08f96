"""A value differs from the site's expectation.

Why: All hosts can have the same wrong value, which a comparison between hosts does not find.
Example: net_class eth0: mtu 1500, expected 9000 (node[01-32])
Fix: Correct the hosts or the expectation.
Reference: rollbook check --expect
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.expect import Expectation
from rollbook.checks.run_data import HostData, RunData
from rollbook.checks.text import field_text, value_text
from rollbook.checks.views import status_of
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "expectation-missed", "fail", (Expectation, HostData)


def check(run: RunData) -> Iterator[Finding]:
    """Each expectation on each host that it applies to; one finding per row and value."""
    unread: set[str] = set()
    unmatched: list[str] = []
    for expectation in run.expectations:
        wrong: dict[tuple[str, str], list[str]] = {}
        hosts = [host for host in run.start if expectation.applies_to(host.name)]
        with_data = [host for host in hosts if host.gave_data]
        if not hosts:
            unmatched.append(f"{expectation.field}: no host of this record matches {expectation.hosts}")
        elif not with_data:
            unread.update(host.name for host in hosts)
        for host in with_data:
            if status_of(host, expectation.field.partition(".")[0]) == "unknown":
                unread.add(host.name)
                continue
            for row, value in expectation.values(host):
                if not expectation.is_met(value):
                    wrong.setdefault((row, value_text(value)), []).append(host.name)
        for (row, text), names in wrong.items():
            field, expected = field_text(expectation.field, row), expectation.describe()
            why = f": {expectation.reason}" if expectation.reason else ""
            yield Finding(
                message=f"{field} {text}, expected {expected}{why} ({fold(names)})",
                hosts=names,
                evidence={"field": expectation.field, "row": row, "value": text, "expected": expected},
            )
    if unread or unmatched:
        raise CannotTell("; ".join([*unmatched, *([f"not read on {fold(unread)}"] if unread else [])]))
