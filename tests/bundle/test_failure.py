"""An issue report of the affected hosts when a run fails."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

import rollbook
from rollbook.api.failure import affected_hosts
from rollbook.bundle.analysis import analyse
from rollbook.bundle.directory import BundleDirectory
from rollbook.errors import RecordError
from rollbook.records.document import encode, read
from rollbook.records.findings import Finding, Findings, RuleResult
from rollbook.records.record import Record
from rollbook.report import write_report
from rollbook.report.build import build
from tests.support import report_records
from tests.support.browser import browser
from tests.support.bundles import BundleCase, write_bundle

LINE = "{} node kernel: nfs: server filer1 not responding, still trying\n"


def test_a_command_that_fails(tmp_path: Path) -> None:
    """The report is stored in the record and covers the time of the run; page and manifest include it."""
    run = rollbook.run(["sh", "-c", "exit 3"], results_dir=tmp_path, interval=1, bundle_on_failure=True, via="local")
    assert run.exit_code == 3
    assert run.bundle_error == ""
    assert run.bundle == run.path / "bundle"
    window = json.loads((run.bundle / "summary.json").read_bytes())["window"]
    since, until = (dt.datetime.fromisoformat(window[side]).timestamp() * 1e9 for side in ("since", "until"))
    assert since <= run.record.hosts.started_ns < run.record.hosts.ended_ns <= until
    assert rollbook.verify(run.path).problems == []
    assert '"page":"bundle/index.html"' in (run.path / "report.html").read_text()


def test_a_report_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has written is in the manifest, which is signed after it."""

    def fail(*_: object, **__: object) -> None:
        raise RecordError("no space left")

    monkeypatch.setattr(BundleDirectory, "write_record", fail)
    run = rollbook.run(["sh", "-c", "exit 3"], results_dir=tmp_path, interval=0, bundle_on_failure=True, via="local")
    assert run.bundle_error == "no space left"
    assert list((run.path / "bundle").iterdir())
    assert rollbook.verify(run.path).problems == []


def test_log_findings_are_on_the_timeline(tmp_path: Path) -> None:
    """A line logged during the run is a mark on the page of the run; one logged before is not."""
    run = report_records.run(tmp_path, 4, 60)
    bundle = run.path / "bundle"
    bundle.mkdir()
    during = dt.datetime.fromtimestamp(run.hosts.started_ns // 10**9 + 30, dt.UTC)
    name = run.hosts.start[2].name
    for at in (during - dt.timedelta(days=1), during):
        text = LINE.format(at.isoformat())
        window = {"since": during - dt.timedelta(seconds=30), "until": during + dt.timedelta(seconds=30)}
        items = {name: {"kernel-log": {"journalctl -k": text}}}
        analyse(write_bundle(bundle, BundleCase(about="", outcome="", items=items, window=window)))
        page = build(run, None)
        assert page.issue_report is not None
        marks = [(mark.kind, mark.start, mark.host) for mark in page.marks if "filer1" in mark.text]
        assert marks == ([("finding", during.timestamp() * 1000, 2)] if at == during else [])


@pytest.mark.needs("chromedriver", "chromium")
def test_page_of_the_run_links_to_the_report(tmp_path: Path) -> None:
    """The link opens the page of the report, and a finding in a log selects its time and host."""
    run = report_records.run(tmp_path, 4, 60)
    bundle = run.path / "bundle"
    bundle.mkdir()
    at = dt.datetime.fromtimestamp(run.hosts.started_ns // 10**9 + 30, dt.UTC)
    items = {run.hosts.start[2].name: {"kernel-log": {"journalctl -k": LINE.format(at.isoformat())}}}
    analyse(write_bundle(bundle, BundleCase(about="", outcome="", items=items)))
    write_report(run, run.path / "report.html")
    with browser() as window:
        window.open(run.path / "report.html")
        window.wait("document.querySelector('#issue-report')")
        assert "filer1" in window.script("return document.querySelector('#issue-report').innerText")
        window.click("#issue-report .when")
        assert run.hosts.start[2].name in window.script("return document.querySelector('.panel').innerText")
        window.script("document.querySelector('#issue-report a').click()")
        window.wait("document.title.startsWith('Issue report')")
        assert window.console() == []


def test_a_command_that_succeeds(tmp_path: Path) -> None:
    """A report is collected only if a check failed."""
    run = rollbook.run(["true"], results_dir=tmp_path, interval=0, bundle_on_failure=True, via="local")
    failed = read(run.path / "findings.json", Findings).failures
    assert (run.bundle is None) == (not failed)


def record_with(directory: Path, *findings: Finding) -> Record:
    """A record of four hosts with these findings."""
    run = report_records.run(directory, 4, 60)
    result = RuleResult(id="mtu-mismatch", outcome="fail", findings=list(findings))
    (run.path / "findings.json").write_bytes(encode(Findings.of("2026-11-16T05:00:00Z", [], [result])))
    return run


def test_affected_hosts(tmp_path: Path) -> None:
    """Hosts of failed checks; all hosts if the command failed or a failed check names none; none without a failure."""
    (tmp_path / "a").mkdir()
    every = [host.name for host in record_with(tmp_path / "a").hosts.start]
    cases: list[tuple[list[Finding], int | None, list[str]]] = [
        ([], 0, []),
        ([Finding(message="x", severity="warn", hosts=[every[1]])], None, []),
        ([Finding(message="x", severity="fail", hosts=[every[1]])], 0, [every[1]]),
        ([Finding(message="x", severity="fail")], 0, every),
        ([Finding(message="x", severity="fail", hosts=[every[1]])], 7, every),
    ]
    for at, (findings, code, expected) in enumerate(cases):
        directory = tmp_path / str(at)
        directory.mkdir()
        assert affected_hosts(record_with(directory, *findings), code) == expected
