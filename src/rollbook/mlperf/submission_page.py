"""The verdict on a results directory as text, and as one HTML page without scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from rollbook.checks.text import value_lines, value_text
from rollbook.files import BY_UMASK, write_file
from rollbook.mlperf.submission import GroupVerdict, RunVerdict, Submission
from rollbook.records.findings import Compared, Finding, RuleResult

__all__ = ["submission_html", "submission_lines", "write_submission_page"]

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:#1b1f24;background:#fff}
h1,h2,h3{line-height:1.25}table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid #d8dee4;overflow-wrap:anywhere}
.CLOSED,.pass{color:#1a7f37}.OPEN,.warn{color:#9a6700}.INVALID,.fail{color:#c52128}.none,.could-not-tell{color:#6e4a9e}
.verdict{font-weight:600}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th,td{border-color:#30363d}
.CLOSED,.pass{color:#3fb950}.OPEN,.warn{color:#d29922}.INVALID,.fail{color:#f85149}.none,.could-not-tell{color:#bc8cff}}
"""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'sha256-{digest}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>MLPerf Storage: {title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def submission_lines(found: Submission) -> Iterator[str]:
    """The verdict of each group, its findings and missing inputs, then each run.

    The values that rules compared follow where a rule did not pass, and for a single run all of them.
    """
    alone = [len(group.runs) for group in found.groups] == [1]
    for group in found.groups:
        yield group.text
        yield from _rule_lines(group.rules, "  ", every=alone)
        for run in group.runs:
            yield f"  {run.path}: {_verdict(run)}"
            yield from _rule_lines(run.rules, "    ", every=alone)
    yield from (f"unreadable: {text}" for text in found.unreadable)
    yield from (f"note: {note}" for note in found.notes)
    counts = ", ".join(f"{count} {word}" for word, count in found.verdicts.items())
    yield f"MLPerf Storage, rules of {found.round}: {counts or 'nothing to judge'}"


def _verdict(run: RunVerdict) -> str:
    if run.is_preparation:
        return f"{run.command} prepares and is not judged"
    return run.verdict or f"not judged; missing: {'; '.join(run.missing)}"


def _rule_lines(rules: Sequence[RuleResult], indent: str, *, every: bool) -> Iterator[str]:
    for rule in rules:
        for finding in rule.findings:
            mark = "silenced" if finding.silenced else finding.severity or "fail"
            yield f"{indent}{mark:<5} {rule.id}: {finding.message}"
            if finding.silenced:
                yield f"{indent}      until {finding.silenced.until}: {finding.silenced.reason}"
            else:
                yield f"{indent}      Fix: {finding.advice}"
    shown = [rule for rule in rules if every or rule.outcome != "pass"]
    yield from (f"{indent}{line}" for line in value_lines(shown))


def write_submission_page(found: Submission, path: Path) -> None:
    """Write the page atomically."""
    write_file(path, submission_html(found).encode(), mode=BY_UMASK)


def submission_html(found: Submission) -> str:
    """The page as text: every value escaped, no script, nothing loaded."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    counts = ", ".join(f"{count} {word}" for word, count in found.verdicts.items())
    body = [
        f"<h1>{escape(found.path)}</h1>",
        f"<p>Rules of {escape(found.round)}: {escape(counts)}. Created {escape(found.created)} by Rollbook.</p>",
        *(f'<p class="INVALID">Unreadable: {escape(text)}</p>' for text in found.unreadable),
        *(f"<p>{escape(note)}</p>" for note in found.notes),
        *(part for group in found.groups for part in _group(group)),
    ]
    return PAGE.format(digest=digest, title=escape(found.path), style=STYLE, body="\n".join(body))


def _group(group: GroupVerdict) -> Iterator[str]:
    yield f'<h2>{escape(group.name)}: <span class="{group.verdict or "none"}">{_label(group.verdict)}</span></h2>'
    yield from _missing(group.missing)
    yield from _table(group.rules)
    for run in group.runs:
        yield f'<h3>{escape(run.path)}: <span class="{run.verdict or "none"}">{_label(run.verdict)}</span></h3>'
        yield from (f"<p>{escape(note)}</p>" for note in run.notes)
        yield from _missing(run.missing)
        yield from _table(run.rules)


def _label(verdict: str | None) -> str:
    return escape(verdict or "not judged")


def _missing(missing: Sequence[str]) -> Iterator[str]:
    if missing:
        yield f"<p>Missing:</p><ul>{''.join(f'<li>{escape(text)}</li>' for text in missing)}</ul>"


def _table(rules: Sequence[RuleResult]) -> Iterator[str]:
    """A row for each value that a rule compared, and for each finding and note."""
    if not rules:
        return
    heads = ("Rule", "Outcome", "Value", "Required", "Measured", "Declared")
    yield f"<table><tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"
    for rule in rules:
        rows = [_row(value) for value in rule.values]
        rows += [f'<td colspan="4">{escape(_finding_text(finding))}</td>' for finding in rule.findings]
        rows += [f'<td colspan="4">{escape(rule.note)}</td>'] if rule.note else []
        for cells in rows:
            outcome = f'<td class="{rule.outcome}">{rule.outcome}</td>'
            yield f"<tr><td>{escape(rule.id)}</td>{outcome}{cells}</tr>"
    yield "</table>"


def _finding_text(finding: Finding) -> str:
    silenced = finding.silenced
    return f"{finding.message} (silenced until {silenced.until}: {silenced.reason})" if silenced else finding.message


def _row(value: Compared) -> str:
    cells = (value.what, value.required, value.measured, value.declared)
    return "".join(f"<td>{'' if cell is None else escape(value_text(cell))}</td>" for cell in cells)
