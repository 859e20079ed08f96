"""Findings as JUnit XML: what failed, what was not judged, and text from hosts that is not valid in XML."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.cli.check import command
from rollbook.exports.junit import junit_xml
from rollbook.records.document import Snapshot, encode
from rollbook.records.findings import Finding, Findings, RuleResult
from tests.support.records import host_results

GOOD: dict[str, Any] = {"thp": {"enabled": "madvise"}}
ODD: dict[str, Any] = {"thp": {"enabled": "\x1b[31malways <&>"}}


@pytest.mark.parametrize(("fail_on", "kind", "code"), [("warn", "failure", 1), ("fail", "system-out", 0)])
def test_a_rule_is_a_test_case(tmp_path: Path, fail_on: str, kind: str, code: int) -> None:
    """A finding at or above the limit is a failure; rules without their input are skipped, not passed."""
    path, xml = tmp_path / "s.json", tmp_path / "check.xml"
    path.write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", host_results({"n[1-4]": GOOD, "n4": ODD}))))
    result = CliRunner().invoke(command, [str(path), "--junit", str(xml), "--fail-on", fail_on])
    assert result.exit_code == code
    suite = ET.fromstring(xml.read_bytes())
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    (part,) = cases["thp-mismatch"]
    assert part.tag == kind
    assert "n4" in (part.text or "")
    assert "?[31malways <&>" in (part.text or "")
    skipped = {name: case for name, case in cases.items() if case.find("skipped") is not None}
    assert "mtu-mismatch" in skipped
    counted = {"tests": len(cases), "failures": len(suite.findall("testcase/failure")), "skipped": len(skipped)}
    assert {name: int(suite.get(name, "")) for name in counted} == counted


@settings(max_examples=50, deadline=None)
@given(text=st.text(), hosts=st.lists(st.text(min_size=1), max_size=3))
def test_any_text(text: str, hosts: list[str]) -> None:
    """Whatever a host sent, the document can be parsed and the finding is in it."""
    rule = RuleResult(id="rule", outcome="fail", findings=[Finding(message=text, hosts=hosts, severity="fail")])
    unknown = RuleResult(id="other", outcome="could-not-tell", note=text)
    document = junit_xml(Findings.of("now", [], [rule, unknown]), "fail", text)
    suite = ET.fromstring(document)
    assert [case[0].tag for case in suite] == ["failure", "skipped"]
