"""Every rule against its data cases, and what every rule promises, whoever wrote it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib.metadata
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.checks import declared, engine
from rollbook.checks.mlperf import whole
from rollbook.checks.rule import SECTIONS, Manual, Rule
from rollbook.checks.rules import written
from rollbook.checks.silence import Silence, apply
from rollbook.checks.subject import Subject, open_subject
from rollbook.checks.views import views
from rollbook.errors import CannotTell
from rollbook.records.document import Snapshot, encode
from rollbook.records.findings import Finding
from rollbook.records.record import RecordHosts
from rollbook.sources import catalogue
from rollbook.sources.base import Facts, compare_of
from tests.support.plugged import Fabric
from tests.support.records import RunCase, host_records

FILES = sorted((Path(__file__).parents[1] / "data" / "checks").glob("*.json"))
CASES = [
    pytest.param(path.stem, case, id=f"{path.stem}-{number}")
    for path in FILES
    for number, case in enumerate(msgspec.json.decode(path.read_bytes(), type=list[RunCase]))
]
PLUGGED = {"site_fabric": "tests.support.plugged"}


@pytest.fixture(autouse=True)
def other_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another package brings the source of `tests.support.plugged`."""

    def entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
        entries = PLUGGED if group == catalogue.GROUP else {}
        return [importlib.metadata.EntryPoint(name, value, group) for name, value in entries.items()]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    catalogue.plugged.cache_clear()
    yield
    catalogue.plugged.cache_clear()


RULES = (*written(), *declared.rules())


def opened(case: RunCase, directory: Path) -> Subject:
    """The case's run; on disk where it has files beside its hosts."""
    run = case.subject()
    if case.summary or case.beside or case.tables:
        run.path = directory / "20260801_120000"
        run.path.mkdir()
        case.write_tables(run.path)
        (run.path / "summary.json").write_text(json.dumps(case.summary))
        for stamp, metadata in case.beside.items():
            (directory / stamp).mkdir()
            (directory / stamp / f"checkpointing_{stamp}_metadata.json").write_text(json.dumps(metadata))
    return run


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_case(rule: str, case: RunCase, tmp_path: Path) -> None:
    """A rule says of a run exactly what its case states, about exactly these hosts."""
    result = engine.ask(engine.rule(rule), opened(case, tmp_path))
    told = [finding.message for finding in result.findings] + [result.note]
    assert result.outcome == case.outcome, told
    assert sorted({host for finding in result.findings for host in finding.hosts}) == sorted(case.hosts)
    assert case.says in "\n".join(told)
    if case.when is not None:
        evidence = result.findings[0].evidence
        assert [evidence[name] for name in ("start_ns", "end_ns") if name in evidence] == case.when


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_hit_and_a_near_miss(rule: Rule) -> None:
    """No rule without data that it finds, and data that it passes over."""
    path = next((path for path in FILES if path.stem == rule.id), None)
    assert path is not None, f"tests/data/checks/{rule.id}.json is missing"
    outcomes = {case.outcome for case in msgspec.json.decode(path.read_bytes(), type=list[RunCase])}
    assert rule.severity in outcomes
    assert "pass" in outcomes


def test_no_data_without_a_rule() -> None:
    """A rule that was renamed takes its cases along."""
    assert {path.stem for path in FILES} == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_manual(rule: Rule) -> None:
    """A rule is named after what is wrong, and says what, why, how it looks, how to fix it, and where to read on."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.id)
    assert rule.severity in ("warn", "fail")
    assert rule.manual.what.endswith(".")
    assert 10 < len(rule.manual.what) < 160
    assert {name for name in SECTIONS if len(getattr(rule.manual, name)) < 5} == set()


def test_ids_are_stable_and_unique() -> None:
    """Silences and scripts go by ids."""
    ids = [rule.id for rule in engine.rules()]
    assert len(ids) == len(set(ids))
    assert {"mtu-mismatch", "kernel-mismatch", "clock-skew", "host-rebooted", "fact-mismatch"} <= set(ids)


def test_declared_fields_exist() -> None:
    """Every pattern of the table fits a view and a field there is."""
    known = {view.name: view for view in views()}
    for name, row in declared.rows().items():
        for pattern in row.fields:
            view, _, field = pattern.partition(".")
            if view != "*":
                assert view in known, f"{name}: {pattern}"
                fields = compare_of(known[view].declared.row_type)
                assert not field or "*" in field or field in fields, f"{name}: {pattern}"


def test_only_the_rest_is_left_to_the_general_rule() -> None:
    """Every compared field of a built-in source has a rule of its own."""
    left = [
        f"{view.name}.{field}"
        for view in views()
        for field, how in view.compared.items()
        if declared.rule_for("mismatch", f"{view.name}.{field}" + ".kernel.x" * how.columns) == "fact-mismatch"
    ]
    assert left == []


def test_every_count_of_errors_has_a_rule() -> None:
    """A source that declares an error count is watched over the run, under a name."""
    for view in views():
        for field, how in view.counted.items():
            rule = declared.rule_for("rose", f"{view.name}.{field}" + ".x" * how.columns)
            assert rule != "error-count-rose", f"{view.name}.{field}"


def test_a_rule_may_need_a_source_of_another_package() -> None:
    """It is asked where such a fact is there; one that needs what no source gives could not tell."""

    class Unknown(Facts):
        """What nobody reads."""

    def old(run: Subject) -> Iterator[Finding]:
        yield from (Finding(message=fabric.version) for _, fabric in run.each(Fabric))

    rule = Rule("site-old", "warn", (Fabric,), old, Manual("", "", "", "", ""))
    run = RunCase(about="", outcome="", start={"n1": {"site_fabric": {"version": "1.0"}}}).subject()
    assert engine.ask(rule, run).outcome == "warn"
    bare = RunCase(about="", outcome="", start={"n1": {}}).subject()
    assert engine.ask(rule, bare).note == "site_fabric was not read"
    lacking = engine.ask(dataclasses.replace(rule, needs=(Unknown,)), run)
    assert lacking.outcome == "could-not-tell"
    assert "which no source gives" in lacking.note


def test_a_rule_that_breaks_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it raises, what it found before stands, and without any finding it could not tell."""

    def broken(run: Subject) -> Iterator[Finding]:
        yield from (Finding(message="old", hosts=[host.name]) for host in run.telling)
        raise ZeroDivisionError("no such thing")

    rule = Rule("site-broken", "warn", (), broken, Manual("", "", "", "", ""))
    monkeypatch.setattr(engine, "rules", lambda: (rule, *RULES))
    run = RunCase(about="", outcome="", start={"n1": {}}).subject()
    (result,) = (one for one in engine.check(run).rules if one.id == "site-broken")
    assert (result.outcome, result.note) == ("warn", "the rule broke: ZeroDivisionError('no such thing')")
    assert engine.ask(rule, Subject(RecordHosts(started_ns=0, ended_ns=0))).outcome == "could-not-tell"


def test_rules_on_nothing_never_pass() -> None:
    """Without any host, no rule about hosts passes."""
    empty = Subject(RecordHosts(started_ns=0, ended_ns=0))
    passed = {one.id for one in engine.check(empty).rules if one.outcome == "pass"}
    assert passed == {"host-missing"}, "nobody was asked for"


def test_unread_sources_never_pass() -> None:
    """Hosts on which nothing was read give no rule about facts a pass."""
    facts = {"identity": {"hostname": "x", "kernel_release": "6"}}
    unread = [name for name in catalogue.NAMES if name != "identity"]
    case = RunCase(about="", outcome="", start={"n[1-4]": facts}, unread=unread)
    results = {one.id: one.outcome for one in engine.check(case.subject()).rules}
    assert {name for name, outcome in results.items() if outcome == "pass"} <= {
        "host-missing",
        "host-partial",
        "kernel-mismatch",
        "machine-id-duplicate",
        "boot-id-duplicate",
    }
    assert results["mtu-mismatch"] == results["memory-mismatch"] == "could-not-tell"


def test_silence_needs_all_hosts_and_an_end_that_is_not_past() -> None:
    """A finding about one host more is not covered; the last day counts, the day after does not."""
    one = Silence(rule="mtu-mismatch", hosts="n[1-2]", reason="new switch", until=dt.date(2026, 8, 1))
    for hosts, today, silenced in (
        (["n1"], dt.date(2026, 8, 1), True),
        (["n1"], dt.date(2026, 8, 2), False),
        (["n1", "n3"], dt.date(2026, 8, 1), False),
        ([], dt.date(2026, 8, 1), False),
    ):
        finding = Finding(message="", hosts=hosts)
        apply([one], "mtu-mismatch", finding, today)
        assert (finding.silenced is not None) == silenced
    finding = Finding(message="", hosts=["n1"])
    apply([one], "kernel-mismatch", finding, dt.date(2026, 8, 1))
    assert finding.silenced is None


def test_the_record_may_be_where_we_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run that wrote the checkpoints lies beside it, whatever the record is called by."""
    path = next(path for path in FILES if path.stem == "mlperf-gap")
    run = opened(msgspec.json.decode(path.read_bytes(), type=list[RunCase])[0], tmp_path)
    assert run.path is not None
    monkeypatch.chdir(run.path)
    run.path = Path()
    assert engine.ask(engine.rule("mlperf-gap"), run).outcome == "fail"


@pytest.mark.parametrize("value", [math.inf, math.nan, None, "many", [], 0, -1])
def test_counts_that_are_none(value: Any) -> None:
    """What other tools wrote in place of a count could not tell."""
    with pytest.raises(CannotTell, match="num_processes"):
        whole(value, "num_processes")


def test_a_silenced_finding_is_no_pass_for_what_was_not_read() -> None:
    """A host that could not tell is still open when the finding about another one is silenced."""
    slow: dict[str, Any] = {"clocksource": {"current": "hpet", "available": []}}
    silent: dict[str, Any] = {"@readings": {}}
    one = Silence(rule="clocksource-slow", reason="old boards", until=dt.date(2026, 8, 1))
    for hosts, outcome in (({"n1": slow}, "pass"), ({"n1": slow, "n2": silent}, "could-not-tell")):
        found = engine.check(RunCase(about="", outcome="", start=hosts).subject(), [one], dt.date(2026, 8, 1))
        assert [rule.outcome for rule in found.rules if rule.id == "clocksource-slow"] == [outcome]


def test_a_snapshot_file_is_a_subject(tmp_path: Path) -> None:
    """What `snapshot -o NAME.json` writes can be checked."""
    hosts = host_records({"n[1-2]": {"thp": {"enabled": "always"}}})
    (tmp_path / "s.json").write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", hosts)))
    assert [host.name for host in open_subject(tmp_path / "s.json").telling] == ["n1", "n2"]
