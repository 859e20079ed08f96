"""Rules for all runs of one model: their number, the time between them, and what must add up."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from rollbook.checks.mlperf import Issue, Validation, finding_for, is_measured_run, is_size, parameter, table
from rollbook.checks.mlperf_round import Round
from rollbook.checks.rules.mlperf_checkpoint_count import count_of
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Compared, Finding, RuleResult, worst

__all__ = ["RULES", "Group", "Run", "evaluate"]

STAMP = "%Y%m%d_%H%M%S"


class Run(msgspec.Struct, kw_only=True):
    """One run of a group: where it is, its metadata and summary, and its own verdict."""

    path: Path
    metadata: dict[str, Any]
    summary: dict[str, Any]
    verdict: str | None
    missing: list[str]

    @property
    def is_measured(self) -> bool:
        """Whether its result counts; data generation prepares."""
        return is_measured_run(self.metadata)

    @property
    def began(self) -> dt.datetime:
        """The local time in its name; raises `CannotTell` if it has none."""
        for text in (self.path.name, str(self.metadata.get("run_datetime") or "")):
            try:
                return dt.datetime.strptime(text, STAMP)  # noqa: DTZ007 - the tool's stamps are local times
            except ValueError:
                continue
        raise CannotTell(f"{self.path.name} is not a time stamp")

    @property
    def seconds(self) -> float:
        """How long it ran; raises `CannotTell` if that is not recorded."""
        runtime = self.metadata.get("runtime")
        if is_size(runtime) and runtime:
            return float(runtime)
        start, end = (_moment(self.summary.get(name)) for name in ("start", "end"))
        if start is None or end is None:
            raise CannotTell(f"the run time of {self.path.name} is not recorded")
        return (end - start).total_seconds()


class Group(msgspec.Struct, kw_only=True):
    """All runs of one model on one system."""

    type: str
    runs: list[Run]
    rules: Round

    @property
    def measured(self) -> list[Run]:
        """The runs whose results count, in the order of their times."""
        return sorted((run for run in self.runs if run.is_measured), key=lambda run: run.path.name)


def _moment(value: Any) -> dt.datetime | None:
    try:
        return dt.datetime.fromisoformat(str(value))
    except ValueError:
        return None


def check_runs(group: Group) -> Iterator[Finding | Compared]:
    """Every run of the group is CLOSED."""
    runs = group.measured
    verdicts = [run.verdict or "not judged" for run in runs]
    yield Compared("verdicts of the runs", "CLOSED", {word: verdicts.count(word) for word in dict.fromkeys(verdicts)})
    for run in runs:
        if run.verdict in ("INVALID", "OPEN"):
            text = f"{run.path.name} is {run.verdict}"
            yield finding_for(Issue(Validation[run.verdict], text, "verification", "CLOSED", run.verdict))
    if waiting := [run.path.name for run in runs if run.verdict is None]:
        raise CannotTell(f"not judged: {', '.join(waiting)}")


def check_run_count(group: Group) -> Iterator[Finding | Compared]:
    """There are as many runs as the round requires."""
    rules, count = group.rules, len(group.measured)
    limits: dict[str, tuple[int, int | None]] = {
        "training": (rules.training.minimum_runs, rules.training.maximum_runs),
        "checkpointing": (1, rules.checkpointing.maximum_runs),
    }
    if rules.vector_database.runs is not None:
        limits["vector_database"] = (rules.vector_database.runs, rules.vector_database.runs)
    if group.type not in limits:
        raise NotApplicable(f"round {rules.name} requires no number of {group.type} runs")
    least, most = limits[group.type]
    required = f">= {least}" if most is None else f"{least}" if least == most else f"{least} to {most}"
    yield Compared("runs", required, count)
    if count < least or (most is not None and count > most):
        text = f"{count} runs, {required} required"
        yield finding_for(Issue(Validation.INVALID, text, "num_runs", required, count))


def check_data_generation(group: Group) -> Iterator[Finding | Compared]:
    """The data set was generated as often as the round requires, and is not smaller than the runs need."""
    if group.type != "training":
        raise NotApplicable("not training")
    wanted = group.rules.training.datagen_runs
    if wanted is None:
        raise NotApplicable(f"round {group.rules.name} has no such rule")
    made = [run for run in group.runs if run.metadata.get("command") == "datagen"]
    yield Compared("data generation runs", wanted, len(made))
    if len(made) != wanted:
        text = f"{len(made)} data generation runs, {wanted} required"
        yield finding_for(Issue(Validation.INVALID, text, "datagen", wanted, len(made)))
        return
    there = [_files(run.metadata) for run in made]
    used = [_files(run.metadata) for run in group.measured]
    if None in there or None in used:
        raise CannotTell("dataset.num_files_train is not recorded for every run")
    most, generated = max((count or 0 for count in used), default=0), max(count or 0 for count in there)
    yield Compared("files of the runs", f"<= {generated} generated", most)
    if most > generated:
        text = f"{generated} files generated, {most} used by a run"
        yield finding_for(Issue(Validation.INVALID, text, "dataset.num_files_train", generated, most))


def _files(metadata: Mapping[str, Any]) -> int | None:
    try:
        return int(parameter(metadata, "dataset.num_files_train"))
    except (TypeError, ValueError):
        return None


def check_gaps(group: Group) -> Iterator[Finding | Compared]:
    """Training runs follow each other without a pause."""
    limit = group.rules.training.gap_times_shortest
    if group.type != "training" or limit is None:
        raise NotApplicable(f"round {group.rules.name} limits no gaps between {group.type} runs")
    runs = group.measured
    if len(runs) < 2:
        raise NotApplicable("there is one run")
    most = limit * min(run.seconds for run in runs)
    gaps = [(after, (after.began - before.began).total_seconds()) for before, after in itertools.pairwise(runs)]
    yield Compared("seconds between the starts of runs", f"< {most:.0f}", max(gap for _, gap in gaps))
    for run, gap in gaps:
        if gap >= most:
            text = f"{run.path.name} started {gap:.0f} s after the run before it; less than {most:.0f} s is required"
            yield finding_for(Issue(Validation.INVALID, text, "run_datetime", f"< {most:.0f} s", gap))


def check_consistency(group: Group) -> Iterator[Finding | Compared]:
    """All runs of a group have the same model, processes, accelerator, hosts and overrides."""
    runs = group.measured
    if len(runs) < 2:
        raise NotApplicable("there is one run")
    for what, value in (
        ("model", lambda run: run.metadata.get("model")),
        ("accelerator", lambda run: run.metadata.get("accelerator")),
        ("num_processes", lambda run: run.metadata.get("num_processes")),
        ("number of hosts", _hosts),
        ("overrides", lambda run: _overrides(group.type, run)),
    ):
        values = sorted({str(value(run)) for run in runs})
        yield Compared(f"{what} of the runs", "equal", values[0] if len(values) == 1 else values)
        if len(values) > 1:
            validation = Validation.INVALID if what == "model" else Validation.OPEN
            yield finding_for(Issue(validation, f"runs differ in {what}: {'; '.join(values)}", what, "equal", values))


def _hosts(run: Run) -> Any:
    cluster = table(run.metadata.get("system_info") or run.metadata.get("cluster_information"))
    return run.summary.get("num_hosts") or cluster.get("num_hosts") or ""


def _overrides(kind: str, run: Run) -> dict[str, Any]:
    """Writing and reading invocations of checkpointing differ in their counts by design."""
    changed = table(run.metadata.get("override_parameters"))
    ignored = "checkpoint.num_checkpoints" if kind == "checkpointing" else "\0"
    return {name: changed[name] for name in sorted(changed) if not name.startswith(ignored)}


def check_checkpoints(group: Group) -> Iterator[Finding | Compared]:
    """Writes and reads of all invocations add up, and reading starts after writing has ended."""
    if group.type != "checkpointing":
        raise NotApplicable("not checkpointing")
    rules, runs = group.rules.checkpointing, group.measured
    counts = [(count_of(run.metadata, "write"), count_of(run.metadata, "read")) for run in runs]
    if any(None in pair for pair in counts):
        raise CannotTell("the number of checkpoints is not recorded for every run")
    writes, reads = sum(pair[0] or 0 for pair in counts), sum(pair[1] or 0 for pair in counts)
    required = f"{rules.writes} writes, {rules.reads} reads"
    yield Compared("checkpoints of all runs", required, f"{writes} writes, {reads} reads")
    if (writes, reads) != (rules.writes, rules.reads):
        text = f"{writes} writes and {reads} reads in all, {required} required"
        yield finding_for(Issue(Validation.INVALID, text, "num_checkpoints", required, [writes, reads]))
    elif rules.split == "one or two" and len(counts) > 1 and counts[0][1]:
        text = "the first of two invocations must only write, the second only read"
        yield finding_for(Issue(Validation.INVALID, text, "num_checkpoints", required, counts))


Check = Callable[[Group], Iterator[Finding | Compared]]
RULES: dict[str, Check] = {
    "mlperf-runs-not-closed": check_runs,
    "mlperf-run-count": check_run_count,
    "mlperf-data-generation": check_data_generation,
    "mlperf-run-gaps": check_gaps,
    "mlperf-runs-inconsistent": check_consistency,
    "mlperf-checkpoint-totals": check_checkpoints,
}
"""Rules over a group, by id; the docstring of each function is its requirement."""


def evaluate(group: Group) -> list[RuleResult]:
    """Evaluate every rule over a group; findings before a missing input are kept."""
    return [_evaluate(name, check, group) for name, check in RULES.items()]


def _evaluate(name: str, check: Check, group: Group) -> RuleResult:
    result = RuleResult(id=name, outcome="pass")
    try:
        for found in check(group):
            if isinstance(found, Compared):
                result.values.append(found)
            else:
                found.advice = found.advice or (check.__doc__ or "")
                result.findings.append(found)
    except NotApplicable as reason:
        result.outcome, result.note = "not-applicable", str(reason)
    except CannotTell as reason:
        result.outcome, result.note = "could-not-tell", str(reason)
    if result.findings:
        result.outcome = worst(result.findings)
    return result
