"""Findings as JUnit XML, which continuous integration shows as tests: one test case per rule.

A finding at or above the limit is a failure. A rule that does not apply, or could not tell, is skipped with the reason:
it is never shown as passed.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from rollbook.clean import clean
from rollbook.hosts import fold
from rollbook.records.findings import Finding, Findings, RuleResult, Severity

__all__ = ["junit_xml"]


def junit_xml(findings: Findings, fail_on: Severity, name: str) -> bytes:
    """The document. `name` is that of the test suite; findings below `fail_on` and silenced ones are output."""
    counted = {id(finding) for finding in findings.at_least(fail_on)}
    suite = ET.Element("testsuite", name=clean(name), timestamp=clean(findings.created))
    failures = skipped = 0
    for result in findings.rules:
        case = ET.SubElement(suite, "testcase", classname="rollbook", name=result.id)
        failing = [finding for finding in result.findings if id(finding) in counted]
        others = [finding for finding in result.findings if id(finding) not in counted]
        if failing:
            failures += 1
            failure = ET.SubElement(case, "failure", message=clean(failing[0].message))
            failure.text = "\n".join(map(_text, failing))
        elif reason := _unknown(result):
            skipped += 1
            ET.SubElement(case, "skipped", message=clean(reason))
        if others:
            ET.SubElement(case, "system-out").text = "\n".join(map(_text, others))
    suite.attrib |= {"tests": str(len(findings.rules)), "failures": str(failures), "skipped": str(skipped)}
    return bytes(ET.tostring(suite, "utf-8", xml_declaration=True))


def _unknown(result: RuleResult) -> str:
    """Why the rule has not passed although it found nothing; empty if it has."""
    if result.outcome in ("not-applicable", "could-not-tell"):
        return f"{result.outcome.replace('-', ' ')}: {result.note}"
    return f"could not tell: {result.note}" if result.is_incomplete else ""


def _text(finding: Finding) -> str:
    severity = "silenced" if finding.silenced else finding.severity
    return clean(f"{severity}: {fold(finding.hosts)}: {finding.message}. {finding.advice}".strip())
