"""The verdict on a results directory: each run by itself, and all runs of a model on a system together."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from rollbook.checks import engine
from rollbook.checks.mlperf_round import Round
from rollbook.checks.mlperf_runs import ModelRun, ModelRuns
from rollbook.checks.mlperf_verdict import Validation, judge, worst_issue
from rollbook.checks.rule import Rule
from rollbook.checks.run_data import RunData, SeveralRuns
from rollbook.checks.silence import Silence, expired
from rollbook.clean import count_text
from rollbook.errors import RecordError
from rollbook.mlperf.runs import find_runs, model_of, open_run
from rollbook.records.document import current_version
from rollbook.records.findings import Finding, Findings, RuleResult, Severity
from rollbook.records.record import RecordHosts
from rollbook.times import iso_now

__all__ = ["GroupVerdict", "RunVerdict", "Submission", "judge_tree"]

NO_HOSTS = RecordHosts(started_ns=0, ended_ns=0)


class RunVerdict(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run: its place, what it was, the verdict or the missing inputs, and the outcome of each rule."""

    path: str
    type: str = ""
    model: str = ""
    command: str = ""
    verdict: str | None = None
    missing: list[str] = []
    notes: list[str] = []
    rules: list[RuleResult] = []

    @property
    def is_preparation(self) -> bool:
        """Whether its command only prepares, such as data generation; such a run has no verdict and lacks nothing."""
        return self.verdict is None and not self.missing


class GroupVerdict(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All runs of a model on a system: the verdict or the missing inputs, the rules over all runs, and each run."""

    name: str
    type: str
    model: str
    verdict: str | None = None
    missing: list[str] = []
    rules: list[RuleResult] = []
    runs: list[RunVerdict] = []

    @property
    def is_preparation(self) -> bool:
        """Whether all its runs only prepare."""
        return all(run.is_preparation for run in self.runs)

    @property
    def text(self) -> str:
        """The group in one line."""
        count = sum(not run.is_preparation for run in self.runs)
        runs = count_text(count, "run")
        if self.is_preparation:
            return f"{self.name}: only preparation, nothing to judge"
        if self.verdict:
            return f"{self.name}: {runs}: {self.verdict}"
        return f"{self.name}: {runs}: not judged; missing: {'; '.join(self.missing)}"


class Submission(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.submission/1"):
    """The verdict on every group of a results directory, by the rules of `round`.

    `verdicts` counts the groups by verdict, without those that only prepare. `unreadable` are runs that could not be
    read, and why: such a directory is not judged as a whole.
    """

    rollbook: str = msgspec.field(default_factory=current_version)
    created: str
    path: str
    round: str
    verdicts: dict[str, int]
    groups: list[GroupVerdict]
    unreadable: list[str] = []
    notes: list[str] = []

    def at_least(self, severity: Severity) -> list[Finding]:
        """The findings of that severity or worse that are not silenced."""
        rules = [rule for group in self.groups for rule in group.rules]
        rules += [rule for group in self.groups for run in group.runs for rule in run.rules]
        return Findings.of(self.created, [], rules).at_least(severity)

    @property
    def is_judged(self) -> bool:
        """Whether every group with runs to judge has a verdict, and every run could be read."""
        return not self.unreadable and all(group.verdict or group.is_preparation for group in self.groups)


def judge_tree(path: Path, rules: Round, silences: Sequence[Silence] = (), **options: Any) -> Submission:
    """Judge every run at or below a path; a path that is a run is judged without rules over several runs.

    Silenced findings are marked; for the verdict they count. Raises `RecordError` if there is no run.
    """
    directories = find_runs(path)
    if not directories:
        raise RecordError(f"{path} has no runs: no directory with a summary.json or a *_metadata.json")
    today = dt.datetime.now(dt.UTC).date()
    members: dict[tuple[str, str, str], list[tuple[ModelRun, RunVerdict]]] = {}
    unreadable = []
    for directory in directories:
        try:
            data = open_run(directory, rules, **options)
        except RecordError as error:
            unreadable.append(str(error))
            continue
        found = _judged(data, _name(directory, path), silences, today)
        run = ModelRun(name=directory.name, metadata=dict(data.metadata), summary=data.summary, verdict=found.verdict)
        members.setdefault((_place(directory, path, found.type), found.type, found.model), []).append((run, found))
    judged = []
    for key, runs in sorted(members.items()):
        group = GroupVerdict(name="/".join(filter(None, key)), type=key[1], model=key[2], runs=[one for _, one in runs])
        if directories == [path]:
            group.verdict, group.missing = group.runs[0].verdict, group.runs[0].missing
        elif not group.is_preparation:
            together = ModelRuns(type=key[1], runs=[run for run, _ in runs])
            _judge_group(group, RunData(NO_HOSTS, mlperf_round=rules, runs=together), silences, today)
        judged.append(group)
    return Submission(
        created=iso_now(),
        path=str(path),
        round=rules.name,
        verdicts=dict(Counter(group.verdict or "not judged" for group in judged if not group.is_preparation)),
        groups=judged,
        unreadable=unreadable,
        notes=expired(silences, today),
    )


def _rules(*, over_several: bool) -> list[Rule]:
    """MLPerf Storage's rules for one run, or those over several."""
    own = (rule for rule in engine.rules() if rule.id.startswith("mlperf-"))
    return [rule for rule in own if (SeveralRuns in rule.needs) == over_several]


def _judged(data: RunData, name: str, silences: Sequence[Silence], today: dt.date) -> RunVerdict:
    kind = str(data.metadata.get("benchmark_type") or "")
    results = [engine.evaluate(rule, data, silences, today) for rule in _rules(over_several=False)]
    findings = Findings.of(iso_now(), [], results)
    if data.mlperf_round is not None and kind in data.mlperf_round.needs:
        judge(findings, data)
    else:
        findings.not_judged = [f"rules for {kind or 'an unknown benchmark'}"]
    return RunVerdict(
        path=name,
        type=kind,
        model=model_of(data.metadata),
        command=str(data.metadata.get("command") or ""),
        verdict=findings.verdict,
        missing=findings.not_judged,
        notes=findings.notes,
        rules=[rule for rule in findings.rules if rule.outcome != "not-applicable"],
    )


def _judge_group(group: GroupVerdict, data: RunData, silences: Sequence[Silence], today: dt.date) -> None:
    """Set rules, verdict and missing inputs of all runs of a model together."""
    results = [engine.evaluate(rule, data, silences, today) for rule in _rules(over_several=True)]
    group.rules = [rule for rule in results if rule.outcome != "not-applicable"]
    worst = worst_issue(group.rules)
    group.missing = [f"{rule.id}: {rule.note}" for rule in group.rules if rule.is_incomplete]
    if worst is Validation.INVALID or not group.missing:
        group.verdict, group.missing = worst.name, []


def _name(directory: Path, root: Path) -> str:
    return str(directory.relative_to(root)) if directory != root else directory.name


def _place(directory: Path, root: Path, kind: str) -> str:
    """The system that a run belongs to: the directories above the one named after its type; empty at the root."""
    parts = directory.relative_to(root).parts
    return "/".join(parts[: parts.index(kind)]) if kind in parts else ""
