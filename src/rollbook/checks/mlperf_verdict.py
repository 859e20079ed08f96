"""MLPerf Storage's verdict on a run: issues that leave it CLOSED, make it OPEN, or make it INVALID.

Rules of Rollbook that judge for MLPerf Storage put an issue into the evidence of each finding (`finding_for`). `judge`
makes the verdict from them: INVALID if any issue is INVALID; no verdict while a rule that the round needs could not be
evaluated; otherwise the worst of the issues.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rollbook.checks.mlperf_round import Round
from rollbook.checks.run_data import RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Finding, Findings, RuleResult

__all__ = [
    "Validation",
    "finding_for",
    "is_measured_run",
    "judge",
    "preview_finding",
    "require_type",
    "round_of",
    "verdict",
    "worst_issue",
]

RUN_COMMANDS = ("", "run")


class Validation(enum.Enum):
    """What an issue means for a submission."""

    CLOSED = "closed"
    OPEN = "open"
    INVALID = "invalid"


def verdict(validations: Iterable[Validation]) -> Validation:
    """Return the worst: INVALID before OPEN before CLOSED."""
    found = set(validations)
    return next((worst for worst in (Validation.INVALID, Validation.OPEN) if worst in found), Validation.CLOSED)


def worst_issue(rules: Iterable[RuleResult]) -> Validation:
    """Return the worst of the issues in the findings of rules; CLOSED without any."""
    issues = (finding.evidence.get("issue") for rule in rules for finding in rule.findings)
    return verdict(Validation(issue["validation"]) for issue in issues if issue)


def finding_for(
    validation: Validation,
    message: str,
    parameter: str,
    expected: Any = None,
    actual: Any = None,
    *,
    severity: str = "error",
    hosts: Iterable[str] = (),
    **evidence: Any,
) -> Finding:
    """Return the finding for an issue: a failure if it makes the run INVALID, else a warning.

    The issue in its evidence has MLPerf Storage's own fields; `severity` is one of them.
    """
    issue = {
        "validation": validation,
        "message": message,
        "parameter": parameter,
        "expected": expected,
        "actual": actual,
        "severity": severity,
    }
    return Finding(
        message=message,
        hosts=list(hosts),
        severity="fail" if validation is Validation.INVALID else "warn",
        evidence={"issue": msgspec.to_builtins(issue), **evidence},
    )


def preview_finding(benchmark: str) -> Finding:
    """The finding of a benchmark that the round only previews."""
    text = f"the {benchmark} benchmark is a preview and not accepted for CLOSED"
    return finding_for(Validation.OPEN, text, "benchmark_status", severity="info")


def judge(found: Findings, run: RunData) -> None:
    """Set verdict, round and missing inputs of a benchmark's findings. Silenced findings count.

    A command that only prepares (datasize, datagen) is not judged, which a note states.
    """
    rules = run.mlperf_round
    if rules is None:
        found.not_judged = ["a round of MLPerf Storage's rules"]
        return
    found.round = rules.name
    command = str(run.metadata.get("command") or "")
    if not is_measured_run(run.metadata):
        found.notes.append(f"MLPerf Storage: {command} is not a measured run and is not judged")
        return
    worst = worst_issue(found.rules)
    results = {result.id: result for result in found.rules}
    kind = str(run.metadata["benchmark_type"])
    needed = rules.needs[kind]
    missing = [f"{name}: {results[name].note}" for name in needed if name in results and results[name].is_incomplete]
    missing += [f"{name}: the rule was not run" for name in needed if name not in results]
    if kind in rules.without_rules:
        missing.append(f"rules for {kind}: {rules.without_rules[kind]}")
    if missing and worst is not Validation.INVALID:
        found.not_judged = missing
    else:
        found.verdict = worst.name


def is_measured_run(metadata: Mapping[str, Any]) -> bool:
    """Whether the command of a run is one whose result counts."""
    return str(metadata.get("command") or "") in RUN_COMMANDS


def require_type(run: RunData, *types: str) -> None:
    """Raise `NotApplicable` unless this is a measured run of one of these benchmark types."""
    if run.metadata.get("benchmark_type") not in types:
        raise NotApplicable(f"not a {' or '.join(types)} run")
    if not is_measured_run(run.metadata):
        raise NotApplicable(f"{run.metadata.get('command')} is not a measured run")


def round_of(run: RunData) -> Round:
    """Return the round to judge by; raises `CannotTell` without one."""
    if run.mlperf_round is None:
        raise CannotTell("no round of MLPerf Storage's rules was chosen")
    return run.mlperf_round
