"""All rules over one run: each is asked, none can break another, and none passes on missing input."""

from __future__ import annotations

import datetime as dt
import functools
import importlib.metadata
from collections.abc import Sequence
from types import ModuleType

from rollbook.checks import declared, silence
from rollbook.checks.mlperf import verdict_of
from rollbook.checks.rule import Rule, of_module
from rollbook.checks.rules import written
from rollbook.checks.silence import Silence
from rollbook.checks.subject import Benchmark, Presence, Subject
from rollbook.errors import CannotTell, NotApplicable, RollbookError, UsageError
from rollbook.records.document import without_gc
from rollbook.records.findings import Finding, Findings, Outcome, RuleResult, worst
from rollbook.times import iso_time

__all__ = ["ask", "check", "rule", "rules"]

ENTRY_POINTS = "rollbook.rules"


@functools.cache
def rules() -> tuple[Rule, ...]:
    """Every rule: written, declared, and those of other packages."""
    found = {one.id: one for one in (*written(), *declared.rules())}
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        one = _plugged(entry)
        if one.id in found:
            raise RollbookError(f"{entry.value}: there is a rule called {one.id} already")
        found[one.id] = one
    return tuple(found.values())


def _plugged(entry: importlib.metadata.EntryPoint) -> Rule:
    """A rule of another package: an entry point that is a `Rule`, or a module that declares one."""
    try:
        loaded = entry.load()
        return of_module(loaded) if isinstance(loaded, ModuleType) else _must_be_rule(loaded)
    except Exception as error:  # whatever a plug-in does when imported
        raise RollbookError(f"the rule {entry.name} of {entry.value} cannot be used: {error!r}") from error


def _must_be_rule(loaded: object) -> Rule:
    if not isinstance(loaded, Rule):
        raise TypeError(f"it is a {type(loaded).__name__}, not a Rule")
    return loaded


def rule(name: str) -> Rule:
    """The rule of that id."""
    found = next((one for one in rules() if one.id == name), None)
    if found is None:
        raise UsageError(f"no rule is called {name!r}; rollbook check --list shows them")
    return found


def check(run: Subject, silences: Sequence[Silence] = (), today: dt.date | None = None) -> Findings:
    """Ask every rule; the document holds what each said."""
    now = dt.datetime.now(dt.UTC)
    today = today or now.date()
    with without_gc():
        results = [ask(one, run) for one in rules()]
    for result in results:
        for finding in result.findings:
            silence.apply(silences, result.id, finding, today)
        if result.findings:
            result.outcome = _judged(result)
    groups = [group.shown() for group in run.groups]
    found = Findings.of(iso_time(now), groups, results)
    found.notes = [*run.strangers(), *silence.expired(silences, today)]
    if run.presence(Benchmark)[0] == "present":
        found.verdict = verdict_of(found).name
        silent = [one.id for one in results if one.id.startswith("mlperf-") and one.left_open]
        if silent:
            found.notes.append(f"{found.verdict} as far as it can be told: {', '.join(silent)} could not tell")
    return found


def ask(one: Rule, run: Subject) -> RuleResult:
    """One rule over one run. What it found before it could not tell more is kept, beside the note that says why."""
    result = RuleResult(id=one.id, outcome="pass")
    try:
        for need in one.needs:
            _must_be_there(*run.presence(need))
        for finding in one.check(run):
            result.findings.append(_completed(finding, one))
        unread = run.unread(one.needs)
        _must_be_there("unknown" if unread else "present", unread)
    except NotApplicable as reason:
        result.outcome, result.note = "not-applicable", str(reason)
    except CannotTell as reason:
        result.outcome, result.note = "could-not-tell", str(reason)
    except Exception as error:  # noqa: BLE001 - whatever a rule stumbles over, the others are asked
        result.outcome, result.note = "could-not-tell", f"the rule broke: {error!r}"
    if result.findings:
        result.outcome = _judged(result)
    return result


def _must_be_there(state: Presence, why: str) -> None:
    if state == "absent":
        raise NotApplicable(why)
    if state == "unknown":
        raise CannotTell(why)


def _judged(result: RuleResult) -> Outcome:
    """What its findings say; where none of them counts, it passes only if nothing was left open."""
    found = worst(result.findings)
    return "could-not-tell" if found == "pass" and result.left_open else found


def _completed(finding: Finding, one: Rule) -> Finding:
    finding.severity = finding.severity or one.severity
    finding.advice = finding.advice or one.manual.fix
    return finding
