"""The ranking of changed facts: facts that fit the changed metrics come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollbook.checks.views import views
from rollbook.comparison.facts import SUBSYSTEMS, SUSPECTS, changed_facts
from rollbook.comparison.model import Row
from rollbook.comparison.statistics import Change
from rollbook.metrics import catalogue
from rollbook.records.record import Record, RecordHosts
from tests.support.records import host_results

PAIR: list[list[float]] = [[100.0], [80.0]]
WORSE = Change(change=-0.2, low=-0.21, high=-0.19, verdict="worse")
FLAT = Change(change=0.0, low=-0.001, high=0.001, verdict="within noise")


def record(sets: dict[str, dict[str, Any]], unread: list[str] | None = None) -> Record:
    """A record with these facts."""
    return Record(Path("x"), {}, RecordHosts(started_ns=0, ended_ns=1, start=host_results(sets, unread)))


def row(kind: Any, name: str, change: Change, hosts: list[str] | None = None) -> Row:
    """One compared value."""
    return Row(kind=kind, name=name, title=name, better="high", values=PAIR, changes=[change], hosts=hosts or [])


def test_fact_of_the_slowest_host_ranks_first() -> None:
    """A fact that changed on the slowest host only ranks above one that changed on all hosts but moved no metric."""
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
    """A fact that differs between repeats of one side ranks below one that differs only between the sides."""
    sets = [{"n1": {"thp": {"enabled": enabled}, "turbo": {"enabled": turbo}}}
            for enabled, turbo in (("always", True), ("madvise", True), ("never", False))]  # fmt: skip
    one, two, other = map(record, sets)
    rows = [row("result", "read_iops", WORSE)]
    found = changed_facts("other", [one, two], [other], rows, 0)
    assert [fact.field.partition(".")[0] for fact in found.facts] == ["turbo", "thp"]
    assert [fact.varies for fact in found.facts] == [False, True]


def test_names_of_views_and_metrics_exist() -> None:
    """Views, fields and prefixes of metrics that do not exist would never match, without an error."""
    fields = {view.name: view.fields for view in views()}
    assert {*SUBSYSTEMS} <= {*fields}
    assert {part for _, part in SUBSYSTEMS.values()} - {""} <= {name.partition("_")[0] for name in catalogue.load()}
    for view, _, field in (part.partition(".") for parts in SUSPECTS.values() for part in parts):
        assert view in fields
        assert not field or field in fields[view]


IDENTITY = {"hostname": "n", "kernel_release": "6.1"}
MOUNT = {"mount_point": "/data", "device_number": "0:9", "root": "/", "fs_type": "nfs4", "source": "s:/x",
         "mount_options": ["rw"], "super_options": ["hard"], "remote": True}  # fmt: skip
BASE = {"n[1-2]": {"identity": IDENTITY, "mountinfo": [MOUNT], "thp": {"enabled": "always"}}}


@pytest.mark.parametrize(
    ("changed", "unread", "unchanged"),
    [
        ({}, [], ["kernel", "mounts"]),
        ({"n2": {"identity": {**IDENTITY, "kernel_release": "6.8"}}}, [], ["mounts"]),
        ({"n2": {"identity": {**IDENTITY, "domainname": "x"}}}, [], ["kernel", "mounts"]),
        ({"n2": {"mountinfo": [{**MOUNT, "super_options": ["soft"]}]}}, [], ["kernel"]),
        ({"n2": {"mountinfo": []}}, [], ["kernel"]),
        ({}, ["identity"], ["mounts"]),
    ],
)
def test_only_facts_that_were_read_are_unchanged(
    changed: dict[str, dict[str, Any]], unread: list[str], unchanged: list[str]
) -> None:
    """A usual cause is called unchanged if none of its fields differs and all hosts of both runs have it."""
    sets = {name: dict(facts) for name, facts in {**BASE, **changed}.items()}
    for source in unread:
        del sets["n[1-2]"][source]
    after = record(sets, unread)
    assert changed_facts("after", [record(BASE)], [after], [], 0).unchanged == unchanged
    assert changed_facts("after", [after], [record(BASE)], [], 0).unchanged == unchanged


def test_unchanged_needs_the_same_hosts_and_equal_repeats() -> None:
    """Facts of different hosts are not "unchanged", and neither is a fact that differs between repeats of one side."""
    before, other = record(BASE), record({"n[3-4]": BASE["n[1-2]"]})
    assert changed_facts("other", [before], [other], [], 0).unchanged == []
    repeat = record({**BASE, "n2": {"identity": {**IDENTITY, "kernel_release": "6.8"}}})
    assert changed_facts("after", [before], [before, repeat], [], 0).unchanged == ["mounts"]


def test_mounts_rank_by_metrics_of_their_file_system() -> None:
    """A changed NFS mount ranks higher if NFS metrics moved, whatever local disks did."""
    before, after = record(BASE), record({**BASE, "n1": {"mountinfo": [{**MOUNT, "super_options": ["soft"]}]}})
    rows = [row("metric", "nfs_read", WORSE), row("metric", "disk_read", FLAT)]
    (fact,) = changed_facts("after", [before], [after], rows, 0).facts
    assert fact.reasons == ["nfs metrics moved"]
