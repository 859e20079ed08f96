"""A value is not what the site expects.

Why: Hosts that agree with each other can all be wrong: the majority is no proof.
Example: net_class.mtu eth0: 1500, expected 9000 (node[01-32])
Fix: Correct the hosts, or the expectation.
Reference: rollbook check --expect
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.expect import Expectation
from rollbook.checks.subject import Subject, Told
from rollbook.checks.text import value_text
from rollbook.checks.views import status_of
from rollbook.errors import CannotTell
from rollbook.hosts import fold
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "expectation-missed", "fail", (Expectation, Told)


def check(run: Subject) -> Iterator[Finding]:
    """Each expectation on each host it is about; hosts with one wrong value together."""
    silent: set[str] = set()
    strange: list[str] = []
    for expectation in run.expectations:
        wrong: dict[tuple[str, str], list[str]] = {}
        about = [host for host in run.start if expectation.concerns(host.name)]
        telling = [host for host in about if host.gave_data]
        if not about:
            strange.append(f"{expectation.field} names no host of this record: {expectation.hosts}")
        elif not telling:
            silent.update(host.name for host in about)
        for host in telling:
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
    if silent or strange:
        raise CannotTell("; ".join([*strange, *([f"not read on {fold(silent)}"] if silent else [])]))
