"""The ranking of changed facts: what fits the observation comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rollbook.comparison.facts import changed_facts
from rollbook.comparison.model import Row
from rollbook.comparison.statistics import Change
from rollbook.records.record import Record, RecordHosts
from tests.support.records import host_results

PAIR: list[list[float]] = [[100.0], [80.0]]
WORSE = Change(change=-0.2, low=-0.21, high=-0.19, verdict="worse")
FLAT = Change(change=0.0, low=-0.001, high=0.001, verdict="within noise")


def record(sets: dict[str, dict[str, Any]]) -> Record:
    """A record with these facts."""
    return Record(Path("x"), {}, RecordHosts(started_ns=0, ended_ns=1, start=host_results(sets)))


def row(kind: Any, name: str, change: Change, hosts: list[str] | None = None) -> Row:
    """One compared value."""
    return Row(kind=kind, name=name, title=name, better="high", values=PAIR, changes=[change], hosts=hosts or [])


def test_the_fact_of_the_slow_host_leads() -> None:
    """A fact that changed on the slowest host only ranks above one that changed on all hosts where nothing moved."""
    before = record({"n[1-4]": {"thp": {"enabled": "always"}, "turbo": {"enabled": True}}})
    after = record(
        {"n[1-4]": {"thp": {"enabled": "never"}, "turbo": {"enabled": True}}, "n3": {"turbo": {"enabled": False}}}
    )
    rows = [
        row("result", "read_iops", WORSE),
        row("host", "cpu_busy", WORSE, ["n1", "n3"]),
        row("metric", "mem_used", FLAT),
    ]
    found = changed_facts("after", [before], [after], rows, 0)
    assert [fact.field.partition(".")[0] for fact in found.facts] == ["turbo", "thp"]
    assert found.facts[0].hosts == ["n3"]
    assert "on the slowest host" in found.facts[0].reasons
    assert "no mem metric moved" in found.facts[1].reasons


def test_a_fact_that_varies_among_repeats_ranks_low() -> None:
    """What also differs between repeats of one side does not separate the sides."""
    sets = [{"n1": {"thp": {"enabled": enabled}, "turbo": {"enabled": turbo}}}
            for enabled, turbo in (("always", True), ("madvise", True), ("never", False))]  # fmt: skip
    one, two, other = map(record, sets)
    rows = [row("result", "read_iops", WORSE)]
    found = changed_facts("other", [one, two], [other], rows, 0)
    assert [fact.field.partition(".")[0] for fact in found.facts] == ["turbo", "thp"]
    assert [fact.varies for fact in found.facts] == [False, True]
