"""What a list of records shows about each: a few fields of its metadata and the counts of its findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from rollbook.errors import RecordError
from rollbook.records.document import current_version
from rollbook.records.hosts import Int64
from rollbook.records.labels import Group, label_of
from rollbook.records.locate import metadata_files, result_directory
from rollbook.records.reading import UNDECODABLE, read_regular

__all__ = ["RecordList", "RecordSummary", "State", "Verdict", "bare_summary", "read_summary", "start_of"]

State = Literal["complete", "recording", "unfinished", "broken"]
Verdict = Literal["ok", "warn", "fail", "command-failed", "unchecked", "unknown"]


class RecordSummary(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One record in a list. What is not known about a record that is not complete is omitted.

    `state` is complete, recording, unfinished (its collector died: `rollbook recover`) or broken, with the reason.
    `verdict` is the worst of: the command failed, findings of severity fail, of severity warn; else ok. It is unchecked
    if no rules were applied, and unknown if the exit status is not known. `verification` is MLPerf Storage's verdict.
    """

    path: str
    state: State
    reason: str = ""
    type: str = ""
    started: str = ""
    seconds: float | None = None
    name: str = ""
    tags: list[str] = []
    note: str = ""
    group: Group | None = None
    command: str = ""
    exit_code: int | None = None
    hosts: int | None = None
    hosts_complete: int | None = None
    host_names: list[str] = []
    findings: dict[str, int] | None = None
    verdict: Verdict
    verification: str | None = None


class RecordList(msgspec.Struct, kw_only=True, tag_field="schema", tag="rollbook.records/1"):
    """The document of `rollbook list --json`, newest first; `omitted` records matched beyond the limit."""

    rollbook: str = msgspec.field(default_factory=current_version)
    results_dir: str
    records: list[RecordSummary]
    omitted: int = 0


class _Coverage(msgspec.Struct):
    requested: Int64 = 0
    by_status: dict[str, Int64] = {}


class _Metadata(msgspec.Struct):
    """The keys of metadata that a list needs; the others, which may be large, are skipped without decoding them."""

    benchmark_type: str = ""
    invocation_start_time: str = ""
    runtime: float | None = None
    executed_command: str = ""
    exit_code: Int64 | None = None
    coverage: _Coverage | None = None
    host_names: list[str] = []
    verification: str | None = None
    label: Any = None


class _Findings(msgspec.Struct):
    counts: dict[str, Int64]


METADATA = msgspec.json.Decoder(_Metadata)
FINDINGS = msgspec.json.Decoder(_Findings)


def read_summary(path: Path) -> RecordSummary:
    """The summary of a finished record; raises `RecordError` with the reason if it cannot be read."""
    found = metadata_files(path)
    if len(found) != 1:
        raise RecordError(f"{len(found)} files named *_metadata.json, not one")
    try:
        metadata = METADATA.decode(read_regular(found[0]))
    except UNDECODABLE as error:
        raise RecordError(f"{found[0].name}: {error}") from error
    if not (path / "hosts.json").exists():
        raise RecordError("hosts.json is missing")
    counts, coverage = _counts(path), metadata.coverage
    return RecordSummary(
        path=str(path),
        state="complete",
        type=metadata.benchmark_type,
        started=metadata.invocation_start_time or start_of(path),
        seconds=metadata.runtime,
        command=metadata.executed_command,
        exit_code=metadata.exit_code,
        hosts=coverage.requested if coverage else None,
        hosts_complete=coverage.by_status.get("complete", 0) if coverage else None,
        host_names=metadata.host_names,
        findings=counts,
        verdict=_verdict(metadata, counts),
        verification=metadata.verification,
        **msgspec.structs.asdict(label_of(metadata.label or {})),
    )


def bare_summary(path: Path, state: State, reason: str = "", label: Any = None) -> RecordSummary:
    """The summary of a record that cannot be read, or not yet: what its place and its journal say."""
    return RecordSummary(
        path=str(path),
        state=state,
        reason=reason,
        type=result_directory(path).parent.name,
        started=start_of(path),
        verdict="unknown",
        **msgspec.structs.asdict(label_of(label or {})),
    )


def start_of(path: Path) -> str:
    """When a record was started, by the name of its directory: `2026-11-16T02:22:27Z`; empty for any other name."""
    day, _, clock = result_directory(path).name.partition("_")
    if len(day) != 8 or len(clock) != 6 or not (day + clock).isdecimal():
        return ""
    return f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock[:2]}:{clock[2:4]}:{clock[4:]}Z"


def _counts(path: Path) -> dict[str, int] | None:
    """The findings by severity; None for a record that was not checked, or whose findings cannot be read."""
    try:
        return FINDINGS.decode(read_regular(path / "findings.json")).counts
    except (RecordError, *UNDECODABLE):
        return None


def _verdict(metadata: _Metadata, counts: dict[str, int] | None) -> Verdict:
    if metadata.exit_code:
        return "command-failed"
    if metadata.executed_command and metadata.exit_code is None:  # the collector was killed before the command ended
        return "unknown"
    if counts is None:
        return "unchecked"
    return "fail" if counts.get("fail") else "warn" if counts.get("warn") else "ok"
