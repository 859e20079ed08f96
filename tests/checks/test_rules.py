"""Every rule against its data cases, and properties of all rules."""

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
from rollbook.checks.mlperf_values import positive_integer
from rollbook.checks.rule import SECTIONS, Manual, Rule
from rollbook.checks.rules import module_rules
from rollbook.checks.run_data import RunData, open_run_data
from rollbook.checks.silence import Silence, apply
from rollbook.checks.views import views
from rollbook.errors import CannotTell
from rollbook.records.document import Snapshot, encode
from rollbook.records.findings import Finding
from rollbook.records.record import RecordHosts
from rollbook.sources import catalogue
from rollbook.sources.base import Facts, compare_of
from tests.support.records import RunCase, host_results
from tests.support.site_fabric.source import Fabric

FILES = sorted((Path(__file__).parents[1] / "data" / "checks").glob("*.json"))
CASES = [
    pytest.param(path.stem, case, id=f"{path.stem}-{number}")
    for path in FILES
    for number, case in enumerate(msgspec.json.decode(path.read_bytes(), type=list[RunCase]))
]
PLUGGED = {"site_fabric": "tests.support.site_fabric.source"}


@pytest.fixture(autouse=True)
def other_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The source of `tests.support.site_fabric.source` is installed as a plug-in."""

    def entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
        entries = PLUGGED if group == catalogue.GROUP else {}
        return [importlib.metadata.EntryPoint(name, value, group) for name, value in entries.items()]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    catalogue.plugins.cache_clear()
    yield
    catalogue.plugins.cache_clear()


RULES = (*module_rules(), *declared.rules())


def run_of_case(case: RunCase, directory: Path) -> RunData:
    """The run data of a case; its files, if any, are written to the directory."""
    run = case.run_data()
    if case.summary or case.beside or case.files or case.tables:
        run.path = directory / "20260801_120000"
        run.path.mkdir()
        case.write_tables(run.path)
        case.write_files(run.path)
        for stamp, metadata in case.beside.items():
            (directory / stamp).mkdir()
            (directory / stamp / f"checkpointing_{stamp}_metadata.json").write_text(json.dumps(metadata))
    return run


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_case(rule: str, case: RunCase, tmp_path: Path) -> None:
    """The outcome, the hosts and the texts of a rule are those of the case."""
    result = engine.evaluate(engine.rule(rule), run_of_case(case, tmp_path))
    messages = [finding.message for finding in result.findings] + [result.note]
    assert result.outcome == case.outcome, messages
    assert sorted({host for finding in result.findings for host in finding.hosts}) == sorted(case.hosts)
    assert case.says in "\n".join(messages)
    assert case.advice in "\n".join(finding.advice for finding in result.findings)
    if case.when is not None:
        evidence = result.findings[0].evidence
        assert [evidence[name] for name in ("start_ns", "end_ns") if name in evidence] == case.when


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_has_a_hit_and_a_near_miss(rule: Rule) -> None:
    """Every rule has a case with a finding and a case without."""
    path = next((path for path in FILES if path.stem == rule.id), None)
    assert path is not None, f"tests/data/checks/{rule.id}.json is missing"
    outcomes = {case.outcome for case in msgspec.json.decode(path.read_bytes(), type=list[RunCase])}
    assert rule.severity in outcomes
    assert "pass" in outcomes


def test_every_case_file_belongs_to_a_rule() -> None:
    """Every case file belongs to a rule."""
    assert {path.stem for path in FILES} == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_manual(rule: Rule) -> None:
    """A rule is named after the problem, and its manual is complete."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.id)
    assert rule.severity in ("warn", "fail")
    assert rule.manual.what.endswith(".")
    assert 10 < len(rule.manual.what) < 160
    assert {name for name in SECTIONS if len(getattr(rule.manual, name)) < 5} == set()


def test_ids_are_stable_and_unique() -> None:
    """Ids are unique, and those that silences and scripts use stay the same."""
    ids = [rule.id for rule in engine.rules()]
    assert len(ids) == len(set(ids))
    assert {"mtu-mismatch", "kernel-mismatch", "clock-skew", "host-rebooted", "fact-mismatch"} <= set(ids)


def test_declared_fields_exist() -> None:
    """Every pattern of a declared rule matches an existing view and field."""
    known = {view.name: view for view in views()}
    for name, row in declared.rows().items():
        for pattern in row.fields:
            view, _, field = pattern.partition(".")
            if view != "*":
                assert view in known, f"{name}: {pattern}"
                fields = compare_of(known[view].definition.row_type)
                assert not field or "*" in field or field in fields, f"{name}: {pattern}"


def test_every_compared_field_has_a_specific_rule() -> None:
    """Every compared field of a built-in source has a specific rule."""
    left = [
        f"{view.name}.{field}"
        for view in views()
        for field, how in view.compared.items()
        if declared.rule_for("mismatch", f"{view.name}.{field}" + ".kernel.x" * how.columns) == "fact-mismatch"
    ]
    assert left == []


def test_every_error_counter_has_a_specific_rule() -> None:
    """Every error counter of a built-in source has a specific rule."""
    for view in views():
        for field, how in view.error_counters.items():
            rule = declared.rule_for("rose", f"{view.name}.{field}" + ".x" * how.columns)
            assert rule != "error-count-rose", f"{view.name}.{field}"


def test_a_rule_may_need_a_source_of_another_package() -> None:
    """The rule is evaluated if the facts exist; if no source gives a needed type, the outcome is could-not-tell."""

    class Unknown(Facts):
        """Facts without a source."""

    def old(run: RunData) -> Iterator[Finding]:
        yield from (Finding(message=fabric.version) for _, fabric in run.each(Fabric))

    rule = Rule("site-old", "warn", (Fabric,), old, Manual("", "", "", "", ""))
    run = RunCase(about="", outcome="", start={"n1": {"site_fabric": {"version": "1.0"}}}).run_data()
    assert engine.evaluate(rule, run).outcome == "warn"
    bare = RunCase(about="", outcome="", start={"n1": {}}).run_data()
    assert engine.evaluate(rule, bare).note == "site_fabric was not read"
    lacking = engine.evaluate(dataclasses.replace(rule, needs=(Unknown,)), run)
    assert lacking.outcome == "could-not-tell"
    assert "no source gives" in lacking.note


def test_an_error_in_a_rule_does_not_stop_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule keeps its earlier findings; without findings, its outcome is could-not-tell."""

    def broken(run: RunData) -> Iterator[Finding]:
        yield from (Finding(message="old", hosts=[host.name]) for host in run.hosts_with_data)
        raise ZeroDivisionError("no such thing")

    rule = Rule("site-broken", "warn", (), broken, Manual("", "", "", "", ""))
    monkeypatch.setattr(engine, "rules", lambda: (rule, *RULES))
    run = RunCase(about="", outcome="", start={"n1": {}}).run_data()
    (result,) = (one for one in engine.check(run).rules if one.id == "site-broken")
    assert (result.outcome, result.note) == ("warn", "error in the rule: ZeroDivisionError('no such thing')")
    assert engine.evaluate(rule, RunData(RecordHosts(started_ns=0, ended_ns=0))).outcome == "could-not-tell"


def test_rules_without_hosts_do_not_pass() -> None:
    """Without hosts, only host-missing passes."""
    empty = RunData(RecordHosts(started_ns=0, ended_ns=0))
    passed = {one.id for one in engine.check(empty).rules if one.outcome == "pass"}
    assert passed == {"host-missing"}


def test_rules_on_unread_sources_do_not_pass() -> None:
    """If only identity was read, rules about other facts do not pass."""
    facts = {"identity": {"hostname": "x", "kernel_release": "6"}}
    unread = [name for name in catalogue.NAMES if name != "identity"]
    case = RunCase(about="", outcome="", start={"n[1-4]": facts}, unread=unread)
    results = {one.id: one.outcome for one in engine.check(case.run_data()).rules}
    assert {name for name, outcome in results.items() if outcome == "pass"} <= {
        "host-missing",
        "host-partial",
        "kernel-mismatch",
        "machine-id-duplicate",
        "boot-id-duplicate",
    }
    assert results["mtu-mismatch"] == results["memory-mismatch"] == "could-not-tell"


def test_one_machine_under_two_names_is_reported_once() -> None:
    """Only its boot ID is reported, and it is not compared with itself; a clone with its own boot ID is still found."""

    def host(number: int, machine_id: int, mtu: int = 1500) -> dict[str, Any]:
        card = {"interface_name": "eth0", "kind": "physical", "driver": "e", "mtu": mtu, "address": f"00:0{number}"}
        return {
            "identity": {
                "hostname": f"n{number}",
                "kernel_release": "6.8.0",
                "boot_id": f"0000000{number}-0000-4000-8000-000000000000",
                "machine_id": str(machine_id) * 32,
            },
            "addresses": {"ipv4": [f"10.0.0.{number}"], "ipv6": []},
            "net_class": [card],
            "dmi": {"product_serial": f"S{number}"},
        }

    hosts = {"n1": host(1, 1), "n2": host(2, 2), "n3": host(3, 3), "n3-ib": host(3, 3, mtu=9000)}
    found = engine.check(RunCase(about="", outcome="", start=hosts).run_data())
    assert {rule.id: rule.findings[0].hosts for rule in found.rules if rule.findings} == {
        "boot-id-duplicate": ["n3", "n3-ib"]
    }
    assert found.counts == {"fail": 1, "warn": 0}
    (message,) = (finding.message for rule in found.rules for finding in rule.findings)
    assert message.startswith("n3,n3-ib are names of one machine (identity: boot_id 00000003-")
    assert [group.hosts for group in found.groups] == [["n1", "n2", "n3"]]
    found = engine.check(RunCase(about="", outcome="", start={**hosts, "n4": host(4, 3)}).run_data())
    assert {rule.id: rule.findings[0].hosts for rule in found.rules if rule.findings} == {
        "boot-id-duplicate": ["n3", "n3-ib"],
        "machine-id-duplicate": ["n3", "n4"],
    }


def test_findings_and_rules_are_counted_separately() -> None:
    """One rule with two findings is one outcome and two findings; silenced findings do not count."""
    other = {"clocksource": {"current": "acpi_pm", "available": []}}
    hosts = {"n1": {"clocksource": {"current": "hpet", "available": []}}, "n2": other}
    one = Silence(rule="clocksource-slow", hosts="n2", reason="old boards", until=dt.date(2026, 8, 1))
    run = RunCase(about="", outcome="", groups={"a": ["n1"], "b": ["n2"]}, start=hosts).run_data()
    for silences, counts in (([], {"fail": 0, "warn": 2}), ([one], {"fail": 0, "warn": 1})):
        found = engine.check(run, silences, dt.date(2026, 8, 1))
        assert found.outcomes["warn"] == 1
        assert found.counts == counts
        assert (len(found.failures), len(found.warnings)) == (0, counts["warn"])
        assert msgspec.json.decode(encode(found))["counts"] == counts


def test_silence_covers_all_hosts_until_its_last_day() -> None:
    """A finding with another host is not covered; the silence applies on its last day and not later."""
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


def test_record_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writing run is found if the record is given as the current directory."""
    path = next(path for path in FILES if path.stem == "mlperf-gap")
    run = run_of_case(msgspec.json.decode(path.read_bytes(), type=list[RunCase])[0], tmp_path)
    assert run.path is not None
    monkeypatch.chdir(run.path)
    run.path = Path()
    assert engine.evaluate(engine.rule("mlperf-gap"), run).outcome == "fail"


@pytest.mark.parametrize("value", [math.inf, math.nan, None, "many", [], 0, -1])
def test_values_that_are_not_positive_integers(value: Any) -> None:
    """Values that are not positive integers raise `CannotTell`."""
    with pytest.raises(CannotTell, match="num_processes"):
        positive_integer(value, "num_processes")


def test_a_silenced_finding_does_not_hide_unread_hosts() -> None:
    """With an unread host the outcome is could-not-tell even if all findings are silenced."""
    slow: dict[str, Any] = {"clocksource": {"current": "hpet", "available": []}}
    unread: dict[str, Any] = {"@readings": {}}
    one = Silence(rule="clocksource-slow", reason="old boards", until=dt.date(2026, 8, 1))
    for hosts, outcome in (({"n1": slow}, "pass"), ({"n1": slow, "n2": unread}, "could-not-tell")):
        found = engine.check(RunCase(about="", outcome="", start=hosts).run_data(), [one], dt.date(2026, 8, 1))
        assert [rule.outcome for rule in found.rules if rule.id == "clocksource-slow"] == [outcome]


def test_a_snapshot_file_can_be_checked(tmp_path: Path) -> None:
    """The output of `snapshot -o NAME.json` is accepted."""
    hosts = host_results({"n[1-2]": {"thp": {"enabled": "always"}}})
    (tmp_path / "s.json").write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", hosts)))
    assert [host.name for host in open_run_data(tmp_path / "s.json").hosts_with_data] == ["n1", "n2"]
