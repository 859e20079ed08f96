"""The page of whole, partial and hostile records: what it says, and that text stays text."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import rollbook
from rollbook.cli import cli
from rollbook.cli.report import command
from rollbook.errors import UsageError
from rollbook.metrics.formatting import amount, clock_span, number
from rollbook.records.document import encode
from rollbook.records.findings import Finding, Findings, RuleResult
from rollbook.records.hosts import HostResult, ReadingStatus
from rollbook.records.record import Phase
from rollbook.report.build import build
from rollbook.report.facts import compare_facts
from rollbook.report.model import CommandShown, FindingShown, HostShown, PageData
from rollbook.report.page import html, write_report
from rollbook.report.phases import phases
from rollbook.report.summary import summarise
from rollbook.report.verdict import _short, verdict
from rollbook.sources.meminfo import MemInfo
from rollbook.sources.mountinfo import MountInfo
from rollbook.sources.thp import HugePages
from rollbook.sources.version import Version
from rollbook.sql.grids import Tables
from tests.support import report_records
from tests.support.records import host_results

EVIL = "</script><script>alert(1)</script>\"'&lt;\u202eedoc\u2066\x1b[31m\u2028=1+1"


def facts(host: int) -> dict[str, Any]:
    """Facts of a host; the third is hostile, the second has other huge pages."""
    evil = EVIL if host == 3 else ""
    return {
        "version": Version(f"Linux version 6.1.0{evil} (builder)", "6.1.0"),
        "meminfo": MemInfo(1 << 28, {"MemTotal": 1 << 28}, {}),
        "mountinfo": [MountInfo(f"/scratch{evil}", "nfs4", f"server:/x{evil}", "/", True, ["rw"], ["rw"], "0:45")],
        "thp": HugePages("always" if host == 2 else "madvise", "madvise"),
    }


def hostile(path: Path) -> PageData:
    """The page of a record one of whose hosts sends markup in every text it can."""
    finding = Finding(message=f"odd {EVIL}", hosts=[EVIL], severity="warn", evidence={EVIL: EVIL}, advice=EVIL)
    renamed = {3: EVIL}
    run = report_records.run(path, 8, 240, renamed=renamed, facts=facts, gaps=((3, 200, 210),))
    views = tables(8, 240, slow=((3, 9.0, 0.1, 0.6),), renamed=renamed)
    return build(report_records.check(run, views, RuleResult(id="odd", outcome="warn", findings=[finding])), views)


def tables(*args: Any, **options: Any) -> Tables:
    """The tables of a made-up run, to be drawn from."""
    return Tables(report_records.tables(*args, **options))


class Elements(HTMLParser):
    """What a browser finds in a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the element."""
        self.tags.append(tag)
        if tag in ("script", "style", "meta"):
            self.scripts.append((dict(attrs) | {"tag": tag}, ""))

    def handle_endtag(self, tag: str) -> None:
        """What follows is outside of it."""
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        """The text of a script or style."""
        if self.scripts and self.tags[-1] in ("script", "style"):
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data


def parsed(text: str) -> Elements:
    """A page, taken apart."""
    elements = Elements()
    elements.feed(text)
    return elements


def test_text_of_hosts_is_only_in_the_document(tmp_path: Path) -> None:
    """No element and no script contains a host's text."""
    text = html(hostile(tmp_path))
    elements = parsed(text)
    assert sorted({tag for tag in elements.tags if tag[0] != "/"}) == [
        "body",
        "div",
        "head",
        "html",
        "meta",
        "noscript",
        "script",
        "style",
        "title",
    ]
    data, script = [found for found in elements.scripts if found[0]["tag"] == "script"]
    assert data[0]["type"] == "application/json"
    assert json.loads(data[1])["hosts"][0]["name"] == EVIL
    assert "<" not in data[1]
    assert "alert(1)" not in script[1]
    assert text.count("alert(1)") == data[1].count("alert(1)")


def test_nothing_can_be_loaded_and_only_the_one_script_runs(tmp_path: Path) -> None:
    """The content security policy allows the embedded script and style only."""
    elements = parsed(html(hostile(tmp_path)))
    policy = next(a["content"] for a, _ in elements.scripts if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        texts = [text for a, text in elements.scripts if a["tag"] == tag and a.get("type") != "application/json"]
        hashes = [f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts]
        assert rules[kind].split() == hashes
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", html(hostile(tmp_path / "again")))


def test_what_a_hostile_host_sends_is_kept_word_for_word(tmp_path: Path) -> None:
    """Escaping loses nothing."""
    page = hostile(tmp_path)
    host = next(host for host in page.hosts if host.name == EVIL)
    about = dict(host.about)
    assert EVIL in about["Kernel"]
    assert about["Mount"].startswith(f"/scratch{EVIL}")
    odd, outlier = page.findings[:2]
    assert outlier.message.startswith(EVIL)
    assert odd.hosts == outlier.hosts == [page.hosts.index(host)]


def test_straggler_is_named_with_numbers(tmp_path: Path) -> None:
    """The message has host, device, ratio, values and time."""
    views = tables(32, 3600, slow=((17, 9.0, 0.07, 0.32),))
    page = build(report_records.check(report_records.run(tmp_path, 32, 3600), views), views)
    (finding,) = page.findings
    assert re.fullmatch(
        r"node17 nvme1n1 disk write latency 9\.\d × the median of 31 peers "
        r"\(1\d\.\d ms against 1\.\d+ ms\), 12:0[34]–12:19 UTC; also .*",
        finding.message,
    )
    assert [page.hosts[host].name for host in finding.hosts] == ["node17"]
    assert (finding.metrics[0], finding.evidence["device"]) == ("disk_write_latency", "nvme1n1")
    assert {"disk_read", "disk_read_latency"} <= set(finding.metrics)
    assert any(detail.startswith("node17 ") and "disk read latency" in detail for detail in finding.details)
    assert [(mark.kind, mark.start, mark.end) for mark in page.marks if mark.kind == "outlier"] == [
        ("outlier", finding.start, finding.end)
    ]
    assert page.verdict.level == "warn"
    assert "node17" in page.verdict.headline
    assert [chart.id for chart in page.charts if chart.highlight == 0] == ["disk_write_latency"]
    assert sum(chart.highlight is not None for chart in page.charts) == 6


def test_an_outlier_from_counters_to_the_message(tmp_path: Path) -> None:
    """`check`, page, SQL and summary name the outlier that is in the tables of a record."""
    run = report_records.run(tmp_path, 8, 600)
    report_records.write_series(report_records.tables(8, 600, slow=((3, 9.0, 0.1, 0.5),)), tmp_path)
    (tmp_path / "findings.json").write_bytes(encode(rollbook.check(tmp_path)))
    asked = CliRunner().invoke(cli, ["check", str(tmp_path), "--fail-on", "warn"])
    assert asked.exit_code == 1
    assert "node3 nvme1n1 disk write latency" in asked.output
    write_report(run, tmp_path / "report.html")
    data = parsed((tmp_path / "report.html").read_text()).scripts
    page = json.loads(next(text for attributes, text in data if attributes.get("type") == "application/json"))
    outlier = next(finding for finding in page["findings"] if finding["id"] == "host-outlier")
    assert outlier["message"].startswith("node3 nvme1n1 disk write latency")
    rows = rollbook.query(run, "SELECT severity, hosts, message FROM findings WHERE rule = 'host-outlier'")
    assert rows == [{"severity": "warn", "hosts": ["node3"], "message": outlier["message"]}]
    assert outlier["message"] in summarise(run).outliers, "the end of `run` names it, too"
    assert {chart["id"] for chart in page["charts"]} >= {"cpu_busy", "disk_read", "net_rx", "psi_io", "mem_available"}


def test_a_healthy_run_has_no_findings(tmp_path: Path) -> None:
    """Noise is not a finding."""
    views = tables(32, 600)
    page = build(report_records.check(report_records.run(tmp_path, 32, 600), views), views)
    assert page.findings == []
    assert page.verdict.headline == "No problems: 32 hosts complete"
    assert page.no_findings == "No findings, and no host differs from its peers."
    assert any("Memory pressure" in note for note in page.notes)  # always zero, said and not drawn
    assert "psi_memory" not in {chart.id for chart in page.charts}


def test_downsampling_is_noted(tmp_path: Path) -> None:
    """The page explains how samples became cells."""
    page = build(report_records.run(tmp_path, 32, 3600), tables(32, 3600))
    assert any(
        "a cell of 9 s shows the minimum, mean and maximum of 9 samples" in note and "peaks stay visible" in note
        for note in page.notes
    )
    assert page.charts[0].beats == 9


def test_partial_run(tmp_path: Path) -> None:
    """Every host is there with its status, gaps are marked."""
    lost = {4: "no route to host"}
    gaps = ((2, 100, 150), (6, 200, 300))
    run = report_records.run(tmp_path, 8, 300, gaps=gaps, lost=lost, code=3)
    page = build(run, tables(8, 300, gaps=gaps, lost=lost))
    assert page.coverage == {"complete": 5, "partial": 2, "unreachable": 1}
    assert page.verdict.headline == "Problems: the command failed with exit status 3"
    assert page.verdict.reasons[:2] == [
        "1 of 8 hosts failed: no route to host on node4",
        "2 of 8 hosts partial: the connection was lost and came back on node[2,6]",
    ]
    assert page.hosts[3].reason == "no route to host"
    assert 3 not in page.charts[0].hosts
    kinds = [(mark.kind, mark.host) for mark in page.marks if mark.kind in ("gap", "reconnect")]
    assert kinds == [("gap", 1), ("reconnect", 1), ("gap", 5)]
    assert page.marks[0].kind == "command"


def test_a_finding_with_a_time_is_on_the_timeline(tmp_path: Path) -> None:
    """Its evidence has the time; findings about the whole run are in the list only."""
    when = {"start_ns": report_records.START_NS, "end_ns": report_records.START_NS + 10**9}
    results = [Finding(message="then", hosts=["node2"], evidence=when), Finding(message="always", hosts=["node2"])]
    found = Findings.of("now", [], [RuleResult(id="odd", outcome="fail", findings=results)])
    page = build(report_records.run(tmp_path, 3, 60, findings=found), None)
    marked = [(mark.text, mark.host, mark.end - mark.start) for mark in page.marks if mark.kind == "finding"]
    assert marked == [("then", 1, 1000)]


def test_facts_differing_shared_and_changed(tmp_path: Path) -> None:
    """Each fact is in the list where it belongs."""

    def end_facts(host: int) -> dict[str, Any]:
        return facts(host) | {"thp": HugePages("always" if host == 2 else "madvise", "never")}

    page = build(report_records.run(tmp_path, 6, 60, facts=facts, end_facts=end_facts), None)
    differing = {(fact.source, fact.row, fact.field): fact.values for fact in page.differing}
    assert differing["thp", "", "enabled"] == [("madvise", "node[1,3-6]"), ("always", "node2")]
    shared = {(fact.source, fact.field): fact.values for fact in page.equal}
    assert shared["thp", "defrag"] == [("madvise", "node[1-6]")]
    assert ("thp", "enabled") not in shared
    assert [(c.source, c.field, c.before, c.after, c.where) for c in page.changes] == [
        ("thp", "defrag", "madvise", "never", "node[1-6]")
    ]


def _swap(priority: int) -> dict[str, Any]:
    row = {"filename": "/dev/sda2", "kind": "partition", "size_kib": 100, "used_kib": 0, "priority": priority}
    return {"swaps": [row]}


def test_equal_facts() -> None:
    """Only facts that all hosts that returned them agree on; not those of one host only, and not unreadable ones."""
    _, equal, _ = compare_facts(host_results({"n[1-2]": _swap(-2), "n3": _swap(10)}))
    assert {fact.field for fact in equal if fact.source == "swaps"} == set()
    bonds = [{"bond": name, "mode": "802.3ad"} for name in ("bond0", "bond1")]
    _, equal, _ = compare_facts(host_results({"n1": {"bonding": bonds}, "n[2-3]": {"bonding": bonds[:1]}}))
    assert {(fact.row, fact.values[0][1]) for fact in equal if fact.source == "bonding"} == {("bond0", "n[1-3]")}
    hosts = host_results({"n[1-3]": {"thp": {"enabled": "madvise"}}})
    del hosts[2].facts["thp"]
    hosts[2].readings["thp"] = ReadingStatus("denied", 0.0)
    _, equal, _ = compare_facts(hosts)
    assert [fact.values for fact in equal if fact.source == "thp"] == [[("madvise", "n[1-2]")]]


def test_phases_of_the_command_may_have_our_names(tmp_path: Path) -> None:
    """The command ends at the last phase `after`; its own phases are shown; one without an end has none."""
    run = report_records.run(tmp_path, 3, 100)
    at = [report_records.START_NS + second * 10**9 for second in (0, 10, 20, 90, 100)]
    names = ("command", "after", "command", "after")
    run.hosts.phases = [Phase(*phase) for phase in zip(names, at[:-1], at[1:], strict=True)]
    page = build(run, None)
    assert page.command is not None
    assert (page.command.start, page.command.end) == (at[0] / 1e6, at[3] / 1e6)
    marked = [(mark.kind, mark.text, mark.start) for mark in page.marks]
    assert marked == [
        ("command", "command", at[0] / 1e6),
        ("phase", "after", at[1] / 1e6),
        ("phase", "command", at[2] / 1e6),
    ]
    run.metadata["exit_code"] = None
    page = build(run, None)
    assert page.command is not None
    assert page.command.end == at[4] / 1e6
    del run.metadata["executed_command"]
    assert [mark.text for mark in build(run, None).marks] == list(names)


def test_what_was_not_checked_is_not_called_fine(tmp_path: Path) -> None:
    """Neither a record without findings, nor one whose outliers could not be searched for."""
    run = report_records.run(tmp_path, 3, 60)
    page = build(run, None)
    assert page.no_findings.startswith("This record has not been checked")
    assert (page.verdict.level, page.verdict.headline) == ("open", "Not checked: 3 hosts complete")
    for rules, text in (
        ([], "outliers: not searched for"),
        ([RuleResult(id="host-outlier", outcome="not-applicable", note="too few hosts")], "outliers: too few hosts"),
    ):
        (tmp_path / "findings.json").write_bytes(encode(Findings.of("now", [], rules)))
        assert build(run, None).no_findings == f"No findings; {text}."


def test_record_without_a_series(tmp_path: Path) -> None:
    """A snapshot has a page too."""
    page = build(report_records.run(tmp_path, 3, 60), None)
    assert page.charts == []
    assert any("no series" in note for note in page.notes)
    assert "<script" in html(page)


def test_report_command(tmp_path: Path) -> None:
    """The command writes the page into the record or to `-o`, but never over another file of the record."""
    record = tmp_path / "record"
    record.mkdir()
    report_records.run(record, 3, 60)
    ran = CliRunner().invoke(command, [str(record)])
    assert ran.exit_code == 0, ran.output
    assert (record / "report.html").read_text().startswith("<!doctype html>")
    other = tmp_path / "other.html"
    assert CliRunner().invoke(command, [str(record), "-o", str(other)]).exit_code == 0
    assert other.stat().st_size > 50_000
    hosts = (record / "hosts.json").read_bytes()
    refused = CliRunner().invoke(command, [str(record), "-o", str(record / "hosts.json")])
    assert isinstance(refused.exception, UsageError)
    assert (record / "hosts.json").read_bytes() == hosts


def test_page_is_one_document_that_reads_back(tmp_path: Path) -> None:
    """The JSON in the page equals the document."""
    page = build(report_records.run(tmp_path, 3, 60), tables(3, 60))
    text = html(page)
    data = next(text for a, text in parsed(text).scripts if a.get("type") == "application/json")
    assert json.loads(data) == json.loads(encode(page))


HOSTS = [HostShown(name=f"n{number}", status="complete") for number in range(4)]
LOST = HostShown(name="gone", status="refused")
REFUSED = [HostShown(name=f"g{number}", status="refused", reason=why) for number, why in enumerate("aab")]
PARTIAL = [HostShown(name=f"p{number}", status="partial", reason="cut off") for number in range(2)]
FAIL = FindingShown("x", "fail", "it is broken", "n1", [1], [], {}, "", "")
WARN = FindingShown("x", "warn", "hm", "n1", [1], [], {}, "", "")
NOTE = FindingShown("x", "note", "by the way", "n1", [1], [], {}, "", "")
MISSING = FindingShown("host-missing", "fail", "refused: a (gone)", "gone", [4], [], {}, "", "")
RAW = FindingShown("x", "fail", "refused [ssh: connect to host gone port 22]" + "y" * 99, "n1", [1], [], {}, "", "")
LONG = FindingShown("x", "fail", f"a, {'b' * 80}, {'c' * 20}", "n1", [1], [], {}, "", "")
SILENT = FindingShown("x", "fail", "known", "n1", [1], [], {}, "", "planned, until 2027-01-01")
NOTHING = Findings.of("now", [], [])
VERDICTS: dict[str, tuple[list[Any], str, str]] = {
    "all well": ([None, HOSTS, []], "good", "No problems: 4 hosts complete"),
    "silenced": ([None, HOSTS, [SILENT]], "good", "No problems: 4 hosts complete"),
    "command failed": (
        [CommandShown("x", 2), HOSTS, [WARN]],
        "bad",
        "Problems: the command failed with exit status 2",
    ),
    "check failed": ([None, HOSTS, [FAIL, WARN]], "bad", "Problems: it is broken (x)"),
    "lost": ([None, [*HOSTS, LOST], []], "warn", "Worth a look: 1 of 5 hosts failed: refused on gone"),
    "lost with reasons": (
        [None, [*HOSTS, *REFUSED], []],
        "warn",
        "Worth a look: 3 of 7 hosts failed: a and 1 other cause on g[0-2]",
    ),
    "missing": ([None, [*HOSTS, LOST], [MISSING]], "bad", "Problems: 1 of 5 hosts failed: refused on gone"),
    "raw text": ([None, HOSTS, [RAW]], "bad", f"Problems: refused{'y' * 83}… (x)"),
    "clauses": ([None, HOSTS, [LONG]], "bad", f"Problems: a, {'b' * 80} (x)"),
    "killed": ([CommandShown("x", None), HOSTS, []], "warn", "Worth a look: the exit status of the command is unknown"),
    "no hosts": ([None, [], []], "open", "No hosts were recorded"),
    "no hosts and a failure": (
        [CommandShown("x", 2), [], []],
        "bad",
        "Problems: the command failed with exit status 2",
    ),
    "one host": ([None, HOSTS[:1], []], "good", "No problems: 1 host complete"),
    "the only host lost": ([None, [LOST], [MISSING]], "bad", "Problems: gone returned no data: refused"),
    "all lost": ([None, REFUSED, []], "bad", "Problems: no host returned data: a and 1 other cause"),
    "the only host partial": ([None, PARTIAL[:1], []], "warn", "Worth a look: p0 is partial: cut off"),
    "all partial": ([None, PARTIAL, []], "warn", "Worth a look: 2 of 2 hosts partial: cut off on p[0-1]"),
    "note": ([None, HOSTS, [NOTE]], "good", "No problems: 4 hosts complete"),
    "warning": ([None, HOSTS, [WARN, WARN]], "warn", "Worth a look: hm (x), and 1 more warning"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_verdict(name: str) -> None:
    """The worst problem comes first."""
    given, level, headline = VERDICTS[name]
    found = verdict(given[0], given[1], given[2], NOTHING)
    assert (found.level, found.headline) == (level, headline)
    assert not any("host-missing" in reason for reason in found.reasons), "a host without data is described once"


def test_checks_that_could_not_tell_are_counted() -> None:
    """A verdict without problems says how many checks lacked their input."""
    unknown = [RuleResult(id=name, outcome="could-not-tell", note="damaged tables") for name in ("a", "b")]
    assert verdict(None, HOSTS, [], Findings.of("now", [], unknown)).reasons == ["2 checks could not tell"]


def test_forged_evidence(tmp_path: Path) -> None:
    """Evidence of another form than expected is not shown."""
    forged = Finding(message="odd", hosts=["node2"], evidence={"metrics": 5, "also": {"a": 1}})
    found = Findings.of("now", [], [RuleResult(id="host-outlier", outcome="fail", findings=[forged])])
    [shown] = build(report_records.run(tmp_path, 3, 60, findings=found), None).findings
    assert (shown.message, shown.metrics, shown.details) == ("odd", [], [])


def test_hosts_have_the_status_of_the_terminal(tmp_path: Path) -> None:
    """A host with several problems has all of their reasons on the page, as in the summary and in the exit code."""
    run = report_records.run(tmp_path, 4, 60, gaps=((2, 10, 30),), lost={3: "no route"})
    run.hosts.end = [HostResult(name="node2", status="unreachable", reason="no route to host")]
    shown = {host.name: (host.status, host.reason) for host in build(run, None).hosts}
    assert shown == {host.name: (host.status, host.reason) for host in run.hosts.outcome}
    assert shown["node2"][0] == "partial"
    assert shown["node2"][1].endswith("; at the end: no route to host")


AMOUNTS = [
    (0, "%", "0 %"),
    (1536, "B", "1.5 KiB"),
    (2.5 * 2**30, "B/s", "2.5 GiB/s"),
    (2500, "ms", "2.5 s"),
    (9.14, "ms", "9.14 ms"),
]


@pytest.mark.parametrize(("value", "unit", "shown"), AMOUNTS)
def test_amount(value: float, unit: str, shown: str) -> None:
    """Numbers have units."""
    assert amount(value, unit) == shown


def test_number_and_clock() -> None:
    """Short numbers and times."""
    assert [number(value) for value in (0.41, 9.125, 27.04, 300, 1234.4)] == ["0.41", "9.12", "27", "300", "1234"]
    start = report_records.START_NS
    assert clock_span(start, start + 900 * 10**9) == "12:00–12:15"
    assert clock_span(start, start + 42 * 10**9) == "12:00:00–12:00:42"


def test_phases_of_one_name(tmp_path: Path) -> None:
    """The first of two was too short for a sample: the statistics are those of the second, at its own time."""
    told = dict.fromkeys(("mean", "p50", "p95", "max", "hosts_p50"), 7.0)
    row = {"number": 1, "phase": "epoch", "metric": "cpu_busy", **told, "slowest_host": None}
    run = report_records.run(tmp_path, 2, 100, phase_statistics=[row])
    first, second = run.hosts.phases[:2]
    run.hosts.phases[:2] = [
        Phase("epoch", first.start_ns, first.end_ns),
        Phase("epoch", second.start_ns, second.end_ns),
    ]
    (shown,) = phases(run)
    assert (shown.name, shown.start, shown.end) == ("epoch", second.start_ns / 1e6, second.end_ns / 1e6)


def test_the_verdict_keeps_nodesets() -> None:
    """Program output in brackets after a blank is left out; the brackets of a nodeset are kept."""
    assert _short("load differs (node[01-16]) [cat: no such file]") == "load differs (node[01-16])"
