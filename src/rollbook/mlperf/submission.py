"""The verdict on a results directory: each run by itself, and all runs of a model on a system together."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from rollbook.checks import engine
from rollbook.checks.mlperf import Issue, Validation, judge, verdict
from rollbook.checks.mlperf_round import Round
from rollbook.errors import RecordError
from rollbook.mlperf import groups
from rollbook.mlperf.groups import Group, Run
from rollbook.mlperf.runs import find_runs, model_of, open_run
from rollbook.records.document import current_version
from rollbook.records.findings import Finding, Findings, RuleResult, Severity
from rollbook.times import iso_now

__all__ = ["GroupVerdict", "RunVerdict", "Submission", "judge_tree"]


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
    def text(self) -> str:
        """The group in one line."""
        count = sum(not run.notes for run in self.runs)
        runs = f"{count} run{'s' * (count != 1)}"
        if self.verdict:
            return f"{self.name}: {runs}: {self.verdict}"
        return f"{self.name}: {runs}: not judged; missing: {'; '.join(self.missing)}"


class Submission(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="schema", tag="rollbook.submission/1"):
    """The verdict on every group of a results directory, by the rules of `round`.

    `unreadable` are runs that could not be read, and why: such a directory is not judged as a whole.
    """

    rollbook: str = msgspec.field(default_factory=current_version)
    created: str
    path: str
    round: str
    verdicts: dict[str, int]
    groups: list[GroupVerdict]
    unreadable: list[str] = []

    def at_least(self, severity: Severity) -> list[Finding]:
        """The findings of that severity or worse."""
        wanted = ("fail",) if severity == "fail" else ("fail", "warn")
        rules = [rule for group in self.groups for rule in group.rules]
        rules += [rule for group in self.groups for run in group.runs for rule in run.rules]
        return [finding for rule in rules for finding in rule.findings if finding.severity in wanted]

    @property
    def is_judged(self) -> bool:
        """Whether every group has a verdict, and every run could be read."""
        return not self.unreadable and all(group.verdict for group in self.groups)


def judge_tree(path: Path, rules: Round, **options: Any) -> Submission:
    """Judge every run at or below a path; a path that is a run is judged without rules over several runs.

    Raises `RecordError` if there is no run.
    """
    directories = find_runs(path)
    if not directories:
        raise RecordError(f"{path} has no runs: no directory with a summary.json or a *_metadata.json")
    members: dict[tuple[str, str, str], list[tuple[Run, RunVerdict]]] = {}
    unreadable = []
    for directory in directories:
        try:
            run, found = _judged(directory, path, rules, options)
        except RecordError as error:
            unreadable.append(str(error))
            continue
        members.setdefault((_place(directory, path, found.type), found.type, found.model), []).append((run, found))
    alone = directories == [path]
    judged = [_group(key, runs, None if alone else rules) for key, runs in sorted(members.items())]
    return Submission(
        created=iso_now(),
        path=str(path),
        round=rules.name,
        verdicts=dict(Counter(group.verdict or "not judged" for group in judged)),
        groups=judged,
        unreadable=unreadable,
    )


def _judged(directory: Path, root: Path, rules: Round, options: dict[str, Any]) -> tuple[Run, RunVerdict]:
    data = open_run(directory, rules, **options)
    metadata = dict(data.metadata)
    results = [engine.evaluate(rule, data) for rule in engine.rules() if rule.id.startswith("mlperf-")]
    findings = Findings.of(iso_now(), [], results)
    if metadata.get("benchmark_type") in rules.needs:
        judge(findings, data)
    else:
        findings.not_judged = [f"rules for {metadata.get('benchmark_type') or 'an unknown benchmark'}"]
    found = RunVerdict(
        path=str(directory.relative_to(root)) if directory != root else directory.name,
        type=str(metadata.get("benchmark_type") or ""),
        model=model_of(metadata),
        command=str(metadata.get("command") or ""),
        verdict=findings.verdict,
        missing=findings.not_judged,
        notes=findings.notes,
        rules=[rule for rule in findings.rules if rule.outcome != "not-applicable"],
    )
    run = Run(path=directory, metadata=metadata, summary=data.summary, verdict=found.verdict, missing=found.missing)
    return run, found


def _place(directory: Path, root: Path, kind: str) -> str:
    """The system that a run belongs to: the directories above the one named after its type; empty at the root."""
    parts = directory.relative_to(root).parts
    return "/".join(parts[: parts.index(kind)]) if kind in parts else ""


def _group(key: tuple[str, str, str], runs: list[tuple[Run, RunVerdict]], rules: Round | None) -> GroupVerdict:
    """Judge the runs of a group together; without rules, the verdict is that of its only run."""
    _, kind, model = key
    found = GroupVerdict(
        name="/".join(part for part in key if part), type=kind, model=model, runs=[one for _, one in runs]
    )
    if rules is None:
        found.verdict, found.missing = found.runs[0].verdict, found.runs[0].missing
        return found
    results = groups.evaluate(Group(type=kind, runs=[run for run, _ in runs], rules=rules))
    found.rules = [rule for rule in results if rule.outcome != "not-applicable"]
    evidence = (finding.evidence["issue"] for rule in found.rules for finding in rule.findings)
    worst = verdict(msgspec.convert(issue, Issue) for issue in evidence)
    found.missing = [f"{rule.id}: {rule.note}" for rule in found.rules if rule.is_incomplete]
    if worst is Validation.INVALID or not found.missing:
        found.verdict, found.missing = worst.name, []
    return found
