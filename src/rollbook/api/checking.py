"""Judges a record: what the rules find, and whether its files are unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollbook.api.arguments import check_arguments
from rollbook.api.listing import record_path
from rollbook.bundle.reading import is_bundle
from rollbook.bundle.rules import rules as bundle_rules
from rollbook.checks import engine
from rollbook.checks.rule import Rule
from rollbook.checks.run_data import RunData, open_run_data
from rollbook.checks.silence import Silence
from rollbook.checks.verify import Verified
from rollbook.checks.verify import verify as verify_record
from rollbook.journal.state import is_unfinished
from rollbook.mlperf import rounds
from rollbook.mlperf.runs import is_results_tree, newest_with_hosts
from rollbook.mlperf.submission import Submission, judge_tree
from rollbook.records.findings import Findings
from rollbook.records.locate import locate_record

__all__ = ["all_rules", "check", "check_results", "find_rule", "run_data_of", "verify"]


def all_rules() -> tuple[Rule, ...]:
    """Every rule: those of records, and those that only read issue reports."""
    return (*engine.rules(), *bundle_rules())


def find_rule(name: str) -> Rule:
    """The rule with that id; raises `UsageError` if there is none."""
    return next((one for one in bundle_rules() if one.id == name), None) or engine.rule(name)


@check_arguments
def check(record: Path | str, *, baseline: Path | str | None = None) -> Findings:
    """Apply every rule to a record or a snapshot file, also against a `baseline` if given; worst outcome first."""
    other = None if baseline is None else run_data_of(record_path(baseline))
    return engine.check(run_data_of(record_path(record), baseline=other))


def check_results(
    path: Path | str, round_name: str = rounds.NEWEST, silences: Sequence[Silence] = (), **options: Any
) -> Submission | None:
    """Judge a results directory of MLPerf Storage: a run, all runs of a model, or a submission.

    `round_name` chooses the rules; findings that `silences` cover are marked and do not count, except for the verdict.
    Options are those of `RunData`. Returns None for a path that is a record of Rollbook or holds no runs of MLPerf
    Storage. Raises `RecordError` if it cannot be read.
    """
    path = Path(path)
    return judge_tree(path, rounds.load(round_name), silences, **options) if is_results_tree(path) else None


@check_arguments
def verify(record: Path | str, allowed_signers: Path | str | None = None) -> Verified:
    """Compare a record with its manifest; `problems` is empty if every file is unchanged.

    With a file of allowed signers (ssh-keygen(1)), a record that none of them signed has a problem.
    """
    return verify_record(locate_record(record_path(record)), None if allowed_signers is None else Path(allowed_signers))


def run_data_of(path: Path, **options: Any) -> RunData:
    """A record, an issue report or a snapshot file as rules see it; an unfinished record is finished first.

    Of a results directory of MLPerf Storage it is the newest run with information about its hosts.
    """
    if is_results_tree(path):
        return newest_with_hosts(path, options.pop("mlperf_round", rounds.load()), **options)
    path = locate_record(path)
    if is_unfinished(path):
        from rollbook.api.finish import open_record  # noqa: PLC0415 - DuckDB is slow to import

        open_record(path)
    options.setdefault("mlperf_round", rounds.load())
    if is_bundle(path):
        from rollbook.bundle.analysis import open_bundle_data  # noqa: PLC0415 - few records are issue reports

        return open_bundle_data(path, **options)
    return open_run_data(path, **options)
