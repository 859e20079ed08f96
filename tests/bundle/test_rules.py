"""Every rule of issue reports with its data cases: each message is found with its line, near misses are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.bundle.analysis import open_bundle_data
from rollbook.bundle.rows import compiled, recoveries, rows, xids
from rollbook.bundle.rules import rules
from rollbook.checks import engine
from rollbook.checks.rule import SECTIONS
from rollbook.records.findings import RuleResult
from tests.support.bundles import BundleCase, kernel_log, read_cases, write_bundle

DATA = Path(__file__).parents[1] / "data" / "bundle" / "rules"
FILES = {path.stem: read_cases(path) for path in sorted(DATA.glob("*.toml"))}
HITS = [pytest.param(rule, line, id=f"{rule}-{at}") for rule, one in FILES.items() for at, line in enumerate(one.hits)]
MISSES = [
    pytest.param(rule, line, id=f"{rule}-{at}") for rule, one in FILES.items() for at, line in enumerate(one.misses)
]
CASES = [pytest.param(rule, case, id=f"{rule}-{case.about}") for rule, found in FILES.items() for case in found.case]
BEFORE, AFTER = (
    "audit: type=1400 audit(1700000000.123:4711): apparmor=ok",
    "usb 1-1: new high-speed USB device number 2",
)


def evaluate(rule: str, case: BundleCase, directory: Path) -> RuleResult:
    """Evaluate one rule on the report of a case."""
    run = open_bundle_data(write_bundle(directory, case))
    found = next(one for one in rules() if one.id == rule)
    if rule == "report-incomplete":
        for one in rules():
            engine.evaluate(one, run)
    return engine.evaluate(found, run)


def log_case(line: str) -> BundleCase:
    """A report with this line between two harmless ones."""
    text = kernel_log(BEFORE, line, AFTER)
    return BundleCase(about="", outcome="", items={"n1": {"kernel-log": {"journalctl -k -b": text}}})


@pytest.mark.parametrize(("rule", "line"), HITS)
def test_hit(rule: str, line: str, tmp_path: Path) -> None:
    """The line is found on its node, with its number and time."""
    result = evaluate(rule, log_case(line), tmp_path)
    assert result.findings, result.note
    (finding,) = result.findings
    assert finding.hosts == ["n1"]
    assert finding.count == 1
    assert (finding.lines[0].path, finding.lines[0].line) == ("nodes/n1/kernel-log/0", 2)
    assert line[:200] in finding.lines[0].text
    assert finding.first is not None
    assert finding.first.isoformat() == "2026-11-16T05:00:01+00:00"
    assert "{" not in finding.message
    assert finding.advice == rows()[rule].fix


@pytest.mark.parametrize(("rule", "line"), MISSES)
def test_near_miss(rule: str, line: str, tmp_path: Path) -> None:
    """A similar line is not found."""
    result = evaluate(rule, log_case(line), tmp_path)
    assert result.findings == []


@pytest.mark.parametrize(("rule", "case"), CASES)
def test_case(rule: str, case: BundleCase, tmp_path: Path) -> None:
    """Outcome, nodes, message, note, severity, count and lines are those of the case."""
    result = evaluate(rule, case, tmp_path)
    texts = [finding.message for finding in result.findings]
    assert result.outcome == case.outcome, (texts, result.note)
    assert sorted({host for finding in result.findings for host in finding.hosts}) == sorted(case.nodes), texts
    assert case.says in " / ".join(texts)
    assert case.note in result.note
    if case.severity:
        assert {finding.severity for finding in result.findings} == {case.severity}
    if case.count is not None:
        assert result.findings[0].count == case.count
    if case.lines is not None:
        assert [line.line for line in result.findings[0].lines] == case.lines


def test_every_pattern_has_a_hit() -> None:
    """Each pattern of each rule, including those of recoveries, matches a line of its data."""
    unused = []
    for rule, found in FILES.items():
        items = [item for case in found.case for node in case.items.values() for item in node.values()]
        texts = [*found.hits, *found.misses, *(text for item in items for text in item.values())]
        patterns = [*(one.match for one in compiled(rule)), *recoveries(rule)]
        unused += [f"{rule}: {one.pattern}" for one in patterns if not any(map(one.search, texts))]
    assert unused == []


def test_every_xid_has_a_hit() -> None:
    """Each code of the table is in the data of its rule."""
    assert [
        code for code, one in xids().items() if not any(f"): {code}," in line for line in FILES[one.rule].hits)
    ] == []


def test_every_rule_has_a_hit_and_a_near_miss() -> None:
    """Every rule has data for both outcomes."""
    for rule in rows():
        found = FILES[rule]
        assert found.hits or any(case.nodes for case in found.case), rule
        assert found.misses or any(not case.nodes for case in found.case), rule


def test_literals_are_in_every_hit() -> None:
    """Each hit contains one of the rule's literal texts; other lines are never compared with its patterns."""
    for rule, row in rows().items():
        for line in FILES[rule].hits:
            assert any(literal in line for literal in row.find), (rule, line)


def test_small_files_of_the_kernel_are_packed(tmp_path: Path) -> None:
    """Files that match a pattern below /proc or /sys are stored in one file; evidence has the line in that file."""
    root = "/sys/devices/system/edac/mc"
    packed = f"==> {root}/mc0/ce_count <==\n0\n==> {root}/mc0/ue_count <==\n0\n==> {root}/mc1/ue_count <==\n3\n"
    items = {"n1": {"memory-errors": {f"{root}/**/*count": packed}}}
    (finding,) = evaluate("memory-errors-counted", BundleCase(about="", outcome="", items=items), tmp_path).findings
    assert (finding.device, finding.count, finding.lines[0].line, finding.lines[0].text) == ("mc1", 3, 6, "3")


def test_manuals() -> None:
    """Every rule has a complete manual and a unique id."""
    ids = [one.id for one in (*engine.rules(), *rules())]
    assert len(set(ids)) == len(ids)
    for one in rules():
        assert one.manual.what.endswith(".")
        assert all(getattr(one.manual, section) for section in SECTIONS)


def test_xid_table_names_rules() -> None:
    """Every code of the table belongs to an existing rule."""
    assert {code.rule for code in xids().values()} <= set(rows())


def test_a_healthy_node(tmp_path: Path) -> None:
    """The kernel log of a healthy virtual machine, with each kind of line once, has no findings."""
    log = (DATA.parent / "healthy" / "dmesg.txt").read_text()
    case = BundleCase(about="", outcome="", items={"n1": {"kernel-log": {"dmesg": log}}})
    run = open_bundle_data(write_bundle(tmp_path, case))
    assert [one.id for one in rules() if engine.evaluate(one, run).findings] == []
