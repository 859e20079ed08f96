"""`rollbook check`: rules over a record or over live hosts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.text import Text

from rollbook.api.checking import all_rules, check_results, find_rule, run_data_of
from rollbook.checks import engine
from rollbook.checks.expect import read_expectations
from rollbook.checks.groups import named_groups
from rollbook.checks.rule import Rule
from rollbook.checks.run_data import MINIMUM_HOST_MEMORY_GB, Benchmark, RunData
from rollbook.checks.silence import read_silences
from rollbook.checks.text import detail_lines, value_lines
from rollbook.clean import clean, count_text
from rollbook.cli.live import gather_live
from rollbook.cli.options import InputFile, Number, complete, file_option, json_option, refuse_given
from rollbook.cli.output import coverage_line, print_failures, print_json, stderr, wrapped
from rollbook.cli.reach import Reach, ReachCommand, reach_options
from rollbook.cli.record_argument import RecordPath
from rollbook.errors import ExitCode, UsageError
from rollbook.exports.junit import junit_xml
from rollbook.files import BY_UMASK, output_path, write_file
from rollbook.hosts import fold
from rollbook.mlperf import rounds
from rollbook.mlperf.submission import Submission
from rollbook.mlperf.submission_page import submission_lines
from rollbook.protocol.plan import Plan
from rollbook.records.findings import Finding, Findings, RuleList, RuleManual, Severity
from rollbook.records.hosts import Coverage
from rollbook.records.layout import require_outside
from rollbook.records.locate import locate_record
from rollbook.records.record import RecordHosts
from rollbook.records.yaml import read_yaml
from rollbook.sources import catalogue

__all__ = ["command", "show_findings"]

FILE = InputFile()
CHECK_OPTIONS = (
    "record",
    "fail_on",
    "baseline",
    "expect",
    "silence",
    "description",
    "minimum_memory",
    "round_name",
    "groups",
    "junit",
    "hosts",
)
SEVERITY_WIDTH = 9  # columns of a severity
COLOURS = {"fail": "red", "warn": "yellow", "note": "cyan"}
MAX_LINES = 12  # lines printed per finding; the JSON document has all


@click.command("check", cls=ReachCommand)
@click.argument("record", required=False, type=RecordPath())
@click.option(
    "--fail-on",
    type=click.Choice(["warn", "fail"]),
    default="fail",
    show_default=True,
    help="Exit with 1 for findings of this severity or worse.",
)
@click.option("--baseline", type=RecordPath(), metavar="RECORD", help="Record to compare with.")
@click.option("--expect", type=FILE, metavar="FILE", help="Expected values of the site (TOML).")
@click.option("--silence", type=FILE, metavar="FILE", help="Findings to silence, each with reason and end date (TOML).")
@click.option("--description", type=FILE, metavar="FILE", help="System description to check the run against (YAML).")
@click.option(
    "--minimum-memory",
    type=Number(0),
    default=MINIMUM_HOST_MEMORY_GB,
    show_default=True,
    metavar="GIB",
    help="Minimum memory of an MLPerf Storage client, in GiB.",
)
@click.option(
    "--round",
    "round_name",
    type=click.Choice(rounds.NAMES),
    default=rounds.NEWEST,
    show_default=True,
    help="Round of MLPerf Storage's rules to judge by.",
)
@click.option(
    "--group", "groups", multiple=True, metavar="NAME=HOSTS", help="Compare these hosts as a group; may be repeated."
)
@json_option
@file_option("--junit", help="Also write the rules as test cases in JUnit XML.")
@click.option(
    "--explain",
    metavar="RULE",
    shell_complete=complete(lambda: [rule.id for rule in engine.rules()]),
    help="Explain a rule: why it matters and how to fix it.",
)
@click.option("--list", "list_rules", is_flag=True, help="List all rules.")
@reach_options
def command(
    reach: Reach,
    *,
    record: Path | None,
    fail_on: Severity,
    baseline: Path | None,
    expect: Path | None,
    silence: Path | None,
    description: Path | None,
    minimum_memory: float,
    round_name: str,
    groups: tuple[str, ...],
    as_json: bool,
    junit: Path | None,
    explain: str | None,
    list_rules: bool,
) -> None:
    """Check a RECORD, an issue report, a snapshot file or MLPerf Storage results; without an argument, live hosts.

    The rules compare hosts with each other and validate the run. A rule whose input is missing is counted as
    could-not-tell; it never passes.
    """
    if explain or list_rules:
        refuse_given(CHECK_OPTIONS, "no hosts are checked with --list or --explain")
        if explain and list_rules:
            raise UsageError("--list and --explain cannot be combined")
        rules = [find_rule(explain)] if explain else list(all_rules())
        _explain(rules, manual=explain is not None, as_json=as_json)
        return
    if record is not None:
        _refuse_what_does_not_fit(record, reach, junit)
    silences = read_silences(silence, [one.id for one in all_rules()]) if silence else []
    options: dict[str, Any] = {
        "named": named_groups(groups),
        "baseline": run_data_of(baseline) if baseline else None,
        "expectations": read_expectations(expect) if expect else (),
        "description": read_yaml(description) if description else None,
        "minimum_memory_gb": minimum_memory,
    }
    if record is not None and (submission := check_results(record, round_name, silences, **options)):
        refuse_given(("junit",), "this is a results directory of several runs; name one of them")
        _show_submission(submission, fail_on, as_json=as_json)
    interrupted, coverage = False, None
    if record is not None:
        run = run_data_of(record, mlperf_round=rounds.load(round_name), **options)
    else:
        hosts, interrupted = gather_live(reach, Plan.of(catalogue.load()))
        run, coverage = RunData(RecordHosts(started_ns=0, ended_ns=0, start=hosts), **options), Coverage.of(hosts)
    if run.presence(Benchmark)[0] != "present":
        refuse_given(("minimum_memory", "round_name"), "this is not a run of an MLPerf Storage benchmark")
    findings = engine.check(run, silences)
    if junit is not None:
        with output_path(junit) as file:
            write_file(file, junit_xml(findings, fail_on, str(record or "live hosts")), mode=BY_UMASK)
    if as_json:
        print_json(findings)
    else:
        show_findings(findings)
    if coverage:
        print_failures(run.start)
        stderr().print(coverage_line(coverage))
    sys.exit(ExitCode.INTERRUPTED if interrupted else _code(findings, fail_on, coverage))


def _refuse_what_does_not_fit(record: Path, reach: Reach, junit: Path | None) -> None:
    """Raise `UsageError` for options that a record does not allow, before a large directory is searched for records."""
    reach.refuse()
    if junit is not None:
        require_outside(locate_record(record), junit)


def _show_submission(found: Submission, fail_on: Severity, *, as_json: bool) -> NoReturn:
    """Print the verdicts; exits with 1 for findings, 3 if something was not judged."""
    if as_json:
        print_json(found)
    else:
        for line in submission_lines(found):
            click.echo(clean(line))
    if found.at_least(fail_on):
        sys.exit(ExitCode.FINDINGS)
    sys.exit(ExitCode.SUCCESS if found.is_judged else ExitCode.INCOMPLETE)


def _code(findings: Findings, fail_on: Severity, coverage: Coverage | None) -> int:
    """No host reached counts before findings; findings count before missing hosts and missing inputs."""
    reached = coverage.exit_code if coverage else 0
    if reached != ExitCode.NO_HOST and findings.at_least(fail_on):
        return ExitCode.FINDINGS
    return reached or (ExitCode.INCOMPLETE if findings.not_judged else ExitCode.SUCCESS)


def _explain(rules: list[Rule], *, manual: bool, as_json: bool) -> None:
    if as_json:
        document = RuleList([RuleManual(rule.id, rule.severity, str(rule.manual)) for rule in rules])
        print_json(document)
        return
    for rule in rules:
        if manual:
            click.echo(f"{rule.id} ({rule.severity})\n")
            for line in str(rule.manual).splitlines():
                click.echo(wrapped(line, sys.stdout, 0))
        else:
            click.echo(f"{rule.id:<32}{rule.severity:<6}{rule.manual.what}")


def show_findings(findings: Findings) -> None:
    """Print findings, worst first, and the counts."""
    console = stderr()
    for result in findings.rules:
        for finding in result.findings:
            _show_finding(result.id, finding)
    for result in (result for result in findings.rules if result.is_incomplete):
        text = wrapped(f"could not tell  {result.id}: {clean(result.note)}", sys.stderr, 2)
        console.print(Text(text, "dim"), soft_wrap=True)
    for note in findings.notes:
        console.print(Text(wrapped(clean(note), sys.stderr, 2), "dim"), soft_wrap=True)
    for line in value_lines(findings.rules):
        console.print(Text(clean(line), "dim"), soft_wrap=True)
    if findings.verdict_text:
        click.echo(clean(findings.verdict_text))
    for line in _summary(findings):
        console.print(wrapped(line, sys.stderr, 2), soft_wrap=True)


def _summary(findings: Findings) -> Iterator[str]:
    """The number of findings, then the rules by outcome: a rule can have several findings."""
    counted = findings.at_least("warn")
    severities = f": {len(findings.failures)} fail, {len(findings.warnings)} warn" if counted else ""
    if not counted and findings.counts.get("note"):
        severities = " of severity fail or warn"
    yield f"{count_text(len(counted), 'finding') if counted else 'no findings'}{severities}"
    hosts = sum(len(group.hosts) for group in findings.groups)
    over = f"{count_text(hosts, 'host')} in {count_text(len(findings.groups), 'group')}" if hosts else "no hosts"
    with_findings = sum(findings.outcomes.get(severity, 0) for severity in ("fail", "warn"))
    others = [f"{count} {outcome}" for outcome, count in findings.outcomes.items() if outcome not in ("fail", "warn")]
    rules = count_text(len(findings.rules), "rule")
    yield f"{rules} over {over}: {', '.join([f'{with_findings} with findings', *others])}"


def _show_finding(rule: str, finding: Finding) -> None:
    label = "silenced" if finding.silenced else finding.severity or "fail"
    group = f" [{clean(finding.group)}]" if finding.group not in ("", "all") else ""
    severity = click.style(f"{label:<{SEVERITY_WIDTH}}", COLOURS.get(label))
    click.echo(f"{severity}{rule}  {clean(fold(finding.hosts))}{group}")
    lines = detail_lines(finding) or [finding.message]
    for line in lines[:MAX_LINES]:
        _echo(line)
    if len(lines) > MAX_LINES:
        _echo(f"and {len(lines) - MAX_LINES} more")
    for evidence in finding.lines:
        _echo(f"{evidence.path}:{evidence.line}: {evidence.text}")
    _echo(
        f"until {finding.silenced.until}: {finding.silenced.reason}" if finding.silenced else f"Fix: {finding.advice}"
    )


def _echo(text: str) -> None:
    click.echo(wrapped(f"{'':<{SEVERITY_WIDTH}}{clean(text)}", sys.stdout, SEVERITY_WIDTH + 2))
