"""`rollbook check` on the command line: exit codes, files, manuals, plug-in rules."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rollbook.api.checking import all_rules
from rollbook.checks import engine
from rollbook.checks.rule import Manual, Rule
from rollbook.checks.run_data import RunData
from rollbook.cli.check import command, show_findings
from rollbook.errors import RollbookError, UsageError
from rollbook.files import write_file
from rollbook.records.document import Snapshot, encode
from rollbook.records.findings import Finding, Findings, RuleResult
from rollbook.records.record import RecordHosts
from tests.support.commands import ROLLBOOK
from tests.support.records import Sets, host_results

GOOD: dict[str, Any] = {"thp": {"enabled": "madvise"}, "clocksource": {"current": "tsc", "available": []}}
WARN: dict[str, Any] = {**GOOD, "thp": {"enabled": "\x1b[31malways"}}
FAIL: dict[str, Any] = {**GOOD, "clocksource": {"current": "jiffies-of-old", "available": []}}


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """The path of a snapshot file."""
    return tmp_path / "s.json"


def check(path: Path, sets: Sets, *options: str) -> Result:
    """Run the command on a snapshot of these hosts; exceptions other than SystemExit are raised."""
    path.write_bytes(encode(Snapshot.of("2026-08-01T00:00:00Z", host_results(sets))))
    result = CliRunner().invoke(command, [str(path), *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.mark.parametrize(
    ("odd", "options", "code"),
    [
        (GOOD, ["--fail-on", "warn"], 0),
        (WARN, [], 0),
        (WARN, ["--fail-on", "warn"], 1),
        (FAIL, [], 1),
        (FAIL, ["--group", "odd=n4", "--group", "rest=n[1-3]"], 0),
    ],
)
def test_exit_code(snapshot: Path, odd: dict[str, Any], options: list[str], code: int) -> None:
    """1 for findings at or above --fail-on."""
    assert check(snapshot, {"n[1-4]": GOOD, "n4": odd}, *options).exit_code == code


def test_text(snapshot: Path) -> None:
    """Rule, odd hosts, values and advice are printed; control characters from hosts are replaced."""
    result = check(snapshot, {"n[1-4]": GOOD, "n4": WARN})
    assert result.stdout.splitlines()[:2] == [
        "warn     thp-mismatch  n4",
        "         thp: enabled madvise on 3 of 4 hosts; ?[31malways on n4",
    ]
    assert "         Fix: 3 of 4 hosts have enabled madvise. Set transparent_hugepage=" in result.stdout
    assert "\x1b" not in result.stdout
    assert "1 finding: 0 fail, 1 warn\n" in result.stderr
    assert "rules over 4 hosts in 1 group: 1 with findings, " in result.stderr


def test_no_findings_and_no_hosts(snapshot: Path) -> None:
    """The summary reports that there are no findings, or no hosts."""
    assert check(snapshot, {"n[1-4]": GOOD}).stderr.splitlines()[-2] == "no findings"
    assert "rules over no hosts: 0 with findings, " in check(snapshot, {}).stderr.splitlines()[-1]


def test_notes_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Notes are printed but not counted; the summary reports no findings of severity fail or warn."""
    note = Finding(message="a process waits", hosts=["n1"], severity="note", advice="Look.")
    show_findings(Findings.of("", [], [RuleResult(id="odd", outcome="pass", findings=[note])]))
    out, err = capsys.readouterr()
    assert out.startswith("note     odd  n1\n")
    assert err.splitlines()[-2] == "no findings of severity fail or warn"


def test_incomplete_input_is_printed(snapshot: Path) -> None:
    """A rule with a finding on one host also names another host that it could not check."""
    result = check(snapshot, {"n1": {"clocksource": {"current": "hpet", "available": []}}, "n2": {"@readings": {}}})
    assert "warn     clocksource-slow  n1" in result.stdout
    assert "could not tell  clocksource-slow: clocksource not read on n2" in result.stderr


def test_document(snapshot: Path) -> None:
    """The document has every rule with its outcome, exact values and groups."""
    document = json.loads(check(snapshot, {"n[1-4]": GOOD, "n4": WARN}, "--json").stdout)
    assert document["schema"] == "rollbook.findings/1"
    assert len(document["rules"]) == sum(document["outcomes"].values()) == len(engine.rules())
    (finding,) = next(rule["findings"] for rule in document["rules"] if rule["id"] == "thp-mismatch")
    assert finding["differences"] == [
        {
            "field": "thp.enabled",
            "values": [
                {"value": "madvise", "hosts": ["n1", "n2", "n3"]},
                {"value": "\x1b[31malways", "hosts": ["n4"]},
            ],
        }
    ]
    assert document["groups"] == [{"name": "all", "profile": "unknown hardware", "hosts": ["n1", "n2", "n3", "n4"]}]


def test_silence(snapshot: Path, tmp_path: Path) -> None:
    """Silenced findings are printed and do not count; expired silences are named."""
    file = tmp_path / "silence.toml"
    file.write_text('[[silence]]\nrule = "clocksource-mismatch"\nreason = "ticket 1"\nuntil = 2999-01-01\n')
    result = check(snapshot, {"n[1-4]": GOOD, "n4": FAIL}, "--silence", str(file))
    assert result.exit_code == 0
    assert "silenced clocksource-mismatch  n4" in result.stdout
    assert "until 2999-01-01: ticket 1" in result.stdout
    file.write_text(file.read_text().replace("2999", "2020"))
    result = check(snapshot, {"n[1-4]": GOOD, "n4": FAIL}, "--silence", str(file))
    assert result.exit_code == 1
    assert "expired on 2020-01-01" in result.stderr


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("--silence", '[[silence]]\nrule = "mtu-mismatch"\nreason = "x"\n', "until"),
        ("--silence", '[[silence]]\nrule = "mtu-mismatch"\nuntil = 2999-01-01\n', "reason"),
        ("--silence", '[[silence]]\nrule = "mtu-mismatch"\nreason = " "\nuntil = 2999-01-01\n', "has no reason"),
        ("--silence", '[[silence]]\nrule = "mtu"\nreason = "x"\nuntil = 2999-01-01\n', "no rule 'mtu'"),
        ("--expect", '[[expect]]\nfield = "thp.enabled"\n', "exactly one of"),
        ("--expect", '[[expect]]\nfield = "thp.enabled"\nequals = "a"\nmatches = "b"\n', "exactly one of"),
        ("--expect", '[[expect]]\nfield = "thp.nothing"\nequals = 1\n', r"no source has a field thp\.nothing"),
        ("--expect", "[[expect\n", "line 1"),
        ("--expect", '[[expect]]\nfield = "thp.enabled"\nmatches = "("\n', "invalid pattern"),
        ("--expect", '[[expect]]\nfield = "net_class.mtu.foo"\nequals = 1\n', "no source has a field"),
        ("--expect", '[[expect]]\nfield = "thp"\nequals = 1\n', "no source has a field thp"),
        ("--silence", "# \xe9t\xe9\n", "can't decode"),
        ("--description", "a: [", "while parsing"),
        ("--description", "a: 2026-99-99", "month must be in"),
        ("--description", "a: !!int ''", "index out of range"),
    ],
)
def test_files_that_cannot_be_used(snapshot: Path, tmp_path: Path, option: str, text: str, why: str) -> None:
    """The error names the problem before anything is checked."""
    file = tmp_path / "file"
    file.write_text(text, "latin-1")
    with pytest.raises(UsageError, match=why):
        check(snapshot, {"n1": GOOD}, option, str(file))


def test_expectations_and_baseline(snapshot: Path, tmp_path: Path) -> None:
    """Both can be given on the command line."""
    file, base = tmp_path / "expect.toml", tmp_path / "base.json"
    file.write_text('[[expect]]\nfield = "thp.enabled"\nequals = "never"\nreason = "as tuned"\n')
    base.write_bytes(encode(Snapshot.of("2026-07-01T00:00:00Z", host_results({"n[1-2]": FAIL}))))
    result = check(snapshot, {"n[1-2]": GOOD}, "--expect", str(file), "--baseline", str(base))
    assert "thp: enabled madvise, expected never: as tuned (n[1-2])" in result.stdout
    assert "clocksource: current jiffies-of-old -> tsc" in result.stdout


def test_groups_on_the_command_line(snapshot: Path) -> None:
    """Named groups are compared separately; invalid ones are rejected."""
    for options, why in ((["--group", "n1"], "NAME=HOSTS"), (["--group", "a=n1", "--group", "b=n[1-2]"], "two groups")):
        with pytest.raises(UsageError, match=why):
            check(snapshot, {"n[1-2]": GOOD}, *options)
    result = check(snapshot, {"n[1-4]": GOOD, "n4": FAIL}, "--group", "a=n1", "--group", "a=n4", "--group", "b=n[3,33]")
    assert "fail     clocksource-mismatch  n[1,4] [a]" in result.stdout
    assert "group b: not in the run: n33" in result.stderr


def test_explain_and_list() -> None:
    """`--explain` prints one manual, `--list` one line per rule."""
    shown = CliRunner().invoke(command, ["--explain", "clock-skew"]).stdout
    assert shown.startswith("clock-skew (warn)\n\nThe clock of a host differs")
    assert [title for title in ("Why:", "Example:", "Fix:", "Reference:") if title not in shown] == []
    listed = CliRunner().invoke(command, ["--list"]).stdout.splitlines()
    assert len(listed) == len(all_rules())
    with pytest.raises(UsageError, match="no rule 'mtu'"):
        engine.rule("mtu")


def test_live_local_host() -> None:
    """Without a record, live hosts are checked; a single host cannot differ."""
    argv = [*ROLLBOOK, "check", "--json"]
    document = json.loads(subprocess.run(argv, capture_output=True, check=False, timeout=60).stdout)
    outcomes = {rule["id"]: rule["outcome"] for rule in document["rules"]}
    assert outcomes["mtu-mismatch"] == "not-applicable"
    assert outcomes["host-missing"] == "pass"


def _always(run: RunData) -> Iterator[Finding]:
    yield Finding(message=f"{len(run.hosts_with_data)} hosts")


PLUGGED = Rule("site-rule", "warn", (), _always, Manual("A site's own.", "w", "e", "f", "r"))


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Values (`module:name`) of a plug-in's entry points; tests append to this list."""
    values: list[str] = []

    def entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
        return [importlib.metadata.EntryPoint("one", value, group) for value in values]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    engine.rules.cache_clear()
    yield values
    monkeypatch.undo()
    engine.rules.cache_clear()


def test_rules_of_other_packages(plugged: list[str], snapshot: Path) -> None:
    """A rule from an entry point is evaluated like a built-in rule."""
    plugged.append(f"{__name__}:PLUGGED")
    assert "site-rule" in check(snapshot, {"n1": GOOD}).stdout


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (f"{__name__}:GOOD", "dict is not a Rule"),
        ("no.such.module:x", "No module named"),
        ("no_rule", "SyntaxError"),
        ("rollbook.checks.rules.clock_skew", "a rule clock-skew already exists"),
    ],
)
def test_rules_that_cannot_be_used(
    plugged: list[str], value: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the plug-in; nothing is checked without it."""
    (tmp_path / "no_rule.py").write_text("def check(")
    monkeypatch.syspath_prepend(tmp_path)
    plugged.append(value)
    with pytest.raises(RollbookError, match=why):
        engine.rules()


def test_minimum_memory(tmp_path: Path) -> None:
    """`--minimum-memory` sets the limit; a run with missing input is not judged and exits with status 3."""
    facts = {"meminfo": {"total_kib": 8 << 20, "kib": {"MemTotal": 8 << 20}, "counts": {}}}
    write_file(
        tmp_path / "hosts.json", encode(RecordHosts(started_ns=1, ended_ns=2, start=host_results({"n1": facts})))
    )
    write_file(tmp_path / "t_metadata.json", b'{"benchmark_type": "training"}')
    for options, is_invalid in (([], False), (["--minimum-memory", "8"], False), (["--minimum-memory", "8.5"], True)):
        result = CliRunner().invoke(command, [str(tmp_path), *options])
        assert ("Host memory 8.0GB below minimum 8.5GB" in result.stdout) == is_invalid
        verdict = "INVALID (rules of 2026-07)\n" if is_invalid else "not judged; missing: mlperf-command-failed: "
        assert f"MLPerf Storage: {verdict}" in result.stdout
        assert result.exit_code == (1 if is_invalid else 3)
