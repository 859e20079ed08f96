"""A value is not what the site expects.

Why: Hosts that agree with each other can all be wrong: the majority is no proof.
Example: net_class.mtu eth0: 1500, expected 9000 (node[01-32])
Fix: Correct the hosts, or the expectation.
Reference: rollbook check --expect
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.expect import Expectation
from rollbook.checks.model import CannotTell, Finding
from rollbook.checks.shown import value_text
from rollbook.checks.subject import Subject
from rollbook.checks.views import status_of
from rollbook.hosts import fold

ID, SEVERITY, NEEDS = "expectation-missed", "fail", (Expectation,)


def check(run: Subject) -> Iterator[Finding]:
    """Each expectation on each host it is about; hosts with one wrong value together."""
    silent: set[str] = set()
    for expectation in run.expectations:
        wrong: dict[tuple[str, str], list[str]] = {}
        for host in run.telling:
            if not expectation.concerns(host.name):
                continue
            if status_of(host, expectation.field.partition(".")[0]) == "unknown":
                silent.add(host.name)
                continue
            for row, value in expectation.values(host):
                if not expectation.met(value):
                    wrong.setdefault((row, value_text(value)), []).append(host.name)
        for (row, text), names in wrong.items():
            where = f"{expectation.field} {row}".strip()
            yield Finding(
                message=f"{where}: {text}, expected {expectation.said()} ({fold(names)})",
                hosts=names,
                evidence={"field": expectation.field, "row": row, "value": text, "expected": expectation.said()},
                advice=expectation.reason,
            )
    if silent:
        raise CannotTell(f"not read on {fold(silent)}")
