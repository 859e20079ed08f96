"""Evaluates all rules over one run. A rule that fails does not affect others, and none passes on missing input."""

from __future__ import annotations

import datetime as dt
import functools
import importlib.metadata
from collections.abc import Sequence
from types import ModuleType

from rollbook.checks import declared, silence
from rollbook.checks.mlperf_verdict import judge
from rollbook.checks.rule import Rule, rule_from_module
from rollbook.checks.rules import module_rules
from rollbook.checks.run_data import Benchmark, Presence, RunData
from rollbook.checks.silence import Silence
from rollbook.errors import CannotTell, NotApplicable, RollbookError, UsageError
from rollbook.records.document import without_gc
from rollbook.records.findings import Compared, Finding, Findings, Outcome, RuleResult, worst
from rollbook.times import iso_time

__all__ = ["check", "evaluate", "rule", "rules"]

ENTRY_POINTS = "rollbook.rules"


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Every rule: modules, declared rules and plug-ins; raises `RollbookError` for a plug-in that cannot be used."""
    found = {one.id: one for one in (*module_rules(), *declared.rules())}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        one = _plugin_rule(entry)
        if one.id in found:
            raise RollbookError(f"{entry.value}: a rule {one.id} already exists")
        found[one.id] = one
    return tuple(found.values())


def _plugin_rule(entry: importlib.metadata.EntryPoint) -> Rule:
    """The rule of an entry point, which is a `Rule` or a module that declares one."""
    try:
        loaded = entry.load()
        return rule_from_module(loaded) if isinstance(loaded, ModuleType) else _require_rule(loaded)
    except Exception as error:  # whatever a plug-in does when imported
        raise RollbookError(f"cannot use rule {entry.name} ({entry.value}): {error!r}") from error


def _require_rule(loaded: object) -> Rule:
    if not isinstance(loaded, Rule):
        raise TypeError(f"{type(loaded).__name__} is not a Rule")
    return loaded


def rule(name: str) -> Rule:
    """The rule with that id; raises `UsageError` if there is none."""
    found = next((one for one in rules() if one.id == name), None)
    if found is None:
        raise UsageError(f"no rule {name!r}; `rollbook check --list` lists them")
    return found


def check(run: RunData, silences: Sequence[Silence] = (), today: dt.date | None = None) -> Findings:
    """Evaluate every rule; findings that a silence covers are marked and do not count."""
    now = dt.datetime.now(dt.UTC)
    today = today or now.date()
    with without_gc():
        chosen = [one for one in (*rules(), *run.more_rules) if one.id not in run.skipped_rules]
        results = [evaluate(one, run, silences, today) for one in chosen]
    groups = [group.summary() for group in run.groups]
    found = Findings.of(iso_time(now), groups, results)
    found.notes = [*run.unmatched_group_hosts(), *silence.expired(silences, today)]
    if run.presence(Benchmark)[0] == "present":
        judge(found, run)
    return found


def evaluate(one: Rule, run: RunData, silences: Sequence[Silence] = (), today: dt.date | None = None) -> RuleResult:
    """One rule over one run. If its input is incomplete, its findings stay and a note gives the reason.

    Findings that a silence covers today are marked and do not count.
    """
    result = RuleResult(id=one.id, outcome="pass")
    try:
        for need in one.needs:
            _require(*run.presence(need))
        for found in one.check(run):
            if isinstance(found, Compared):
                result.values.append(found)
            else:
                result.findings.append(_with_defaults(found, one))
        unread = run.describe_unread(one.needs)
        _require("unknown" if unread else "present", unread)
    except NotApplicable as reason:
        result.outcome, result.note = "not-applicable", str(reason)
    except CannotTell as reason:
        result.outcome, result.note = "could-not-tell", str(reason)
    except Exception as error:  # noqa: BLE001 - an error in one rule must not stop the others
        result.outcome, result.note = "could-not-tell", f"error in the rule: {error!r}"
    for finding in result.findings:
        silence.apply(silences, result.id, finding, today or dt.datetime.now(dt.UTC).date())
    if result.findings:
        result.outcome = _outcome(result)
    return result


def _require(state: Presence, why: str) -> None:
    if state == "absent":
        raise NotApplicable(why)
    if state == "unknown":
        raise CannotTell(why)


def _outcome(result: RuleResult) -> Outcome:
    """The worst severity of its findings. If all are silenced, it passes only if its input was complete."""
    found = worst(result.findings)
    return "could-not-tell" if found == "pass" and result.is_incomplete else found


def _with_defaults(finding: Finding, one: Rule) -> Finding:
    finding.severity = finding.severity or one.severity
    finding.advice = finding.advice or one.manual.fix
    return finding
