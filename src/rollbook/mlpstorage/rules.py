"""MLPerf Storage's rule checkers by name, over Rollbook's own rules of the 2026-03 round.

A rule that could not be evaluated is an OPEN issue: what was not checked is never CLOSED.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rollbook.checks import engine
from rollbook.checks.mlperf_clients import is_measured
from rollbook.checks.mlperf_values import GIB
from rollbook.checks.mlperf_verdict import verdict
from rollbook.checks.rules.mlperf_checkpoint_count import count_of
from rollbook.checks.rules.mlperf_minimum_memory import too_small
from rollbook.checks.run_data import MINIMUM_HOST_MEMORY_GB, RunData
from rollbook.errors import RollbookError
from rollbook.mlperf.runs import recorded_part
from rollbook.mlpstorage.config import BENCHMARK_TYPES, PARAM_VALIDATION, ROUND
from rollbook.mlpstorage.issues import Issue
from rollbook.mlpstorage.logs import log
from rollbook.mlpstorage.results import BenchmarkRun
from rollbook.records.findings import Finding
from rollbook.records.record import RecordHosts

__all__ = [
    "BenchmarkRulesChecker",
    "BenchmarkVerifier",
    "CheckpointSubmissionRulesChecker",
    "CheckpointingRunRulesChecker",
    "ClusterValidationRulesChecker",
    "KVCacheRunRulesChecker",
    "MultiRunRulesChecker",
    "RulesChecker",
    "RunRulesChecker",
    "TrainingRunRulesChecker",
    "TrainingSubmissionRulesChecker",
    "VectorDBRunRulesChecker",
]

CLOSED, OPEN, INVALID = PARAM_VALIDATION.CLOSED, PARAM_VALIDATION.OPEN, PARAM_VALIDATION.INVALID
Found = Issue | Iterable[Issue] | None


class RulesChecker(abc.ABC):  # noqa: B024 - a base class, as in the tool
    """Runs every method called `check_…`, in the order of their names, and gathers their issues.

    A check returns None, an issue or several, or appends to `issues`.
    """

    def __init__(self, logger: Any, *_args: Any, **_kwargs: Any) -> None:
        self.logger = logger
        self.issues: list[Issue] = []
        names = sorted(name for name in dir(type(self)) if name.startswith("check_"))
        self.check_methods: list[Callable[[], Found]] = [
            getattr(self, name) for name in names if callable(getattr(self, name))
        ]

    def run_checks(self) -> list[Issue]:
        """Return all issues of this call. A check that raises is an INVALID issue."""
        self.issues = []
        for check in self.check_methods:
            name = check.__name__
            log(self.logger, "debug", f"Running check {name}")
            try:
                found = check()
                if found is not None:
                    self.issues.extend([found] if isinstance(found, Issue) else found)
            except Exception as error:  # noqa: BLE001 - a check of the user's may raise anything
                log(self.logger, "error", f"Check {name} failed with error: {error}")
                self.issues.append(Issue(INVALID, f"Check {name} failed with error: {error}"))
        return self.issues

    def get_category(self) -> PARAM_VALIDATION:
        """Return the worst of the issues."""
        return verdict(issue.validation for issue in self.issues)


class RunRulesChecker(RulesChecker):
    """Checks one run."""

    benchmark_type: BENCHMARK_TYPES | None = None

    def __init__(self, benchmark_run: BenchmarkRun, *args: Any, logger: Any = None, **kwargs: Any) -> None:
        super().__init__(logger or (args[0] if args else None), **kwargs)
        self.benchmark_run = benchmark_run

    @property
    def parameters(self) -> dict[str, Any]:
        """The run's parameters."""
        found: dict[str, Any] = self.benchmark_run.parameters
        return found

    @property
    def override_parameters(self) -> dict[str, Any]:
        """The parameters that were changed, by dotted name."""
        found: dict[str, Any] = self.benchmark_run.override_parameters
        return found

    @property
    def system_info(self) -> Any:
        """The cluster information of the run."""
        return self.benchmark_run.system_info

    def check_benchmark_type(self) -> Issue | None:
        """The run is of the type that this checker knows."""
        expected, actual = self.benchmark_type, self.benchmark_run.benchmark_type
        if expected is None or actual == expected:
            return None
        return Issue(INVALID, f"Invalid benchmark type: {actual}", "benchmark_type", expected, actual)

    def _issues(self, rule: str, *parameters: str) -> list[Issue]:
        """Return the issues of one of Rollbook's rules, of these parameters alone where some are named."""
        return _issues(self.benchmark_run, rule, parameters)


class TrainingRunRulesChecker(RunRulesChecker):
    """Checks a training run."""

    benchmark_type = BENCHMARK_TYPES.training

    def check_model_recognized(self) -> list[Issue]:
        """The model is part of the round."""
        return self._issues("mlperf-model-unknown")

    def check_num_files_train(self) -> list[Issue]:
        """The data set is large enough."""
        return self._issues("mlperf-dataset-size")

    def check_allowed_params(self) -> list[Issue]:
        """Only parameters that the division allows were changed; allowed ones are CLOSED issues, which inform."""
        rules = ROUND.training.overrides
        allowed = [name for name in self.override_parameters if name in rules.closed]
        informed = [
            Issue(CLOSED, f"{name} may be changed in CLOSED", name, None, self.override_parameters[name], "info")
            for name in allowed
        ]
        return informed + self._issues("mlperf-override-forbidden")

    def check_workflow_parameters(self) -> None:
        """The tool sets the workflow itself: there is nothing to check."""

    def check_odirect_supported_model(self) -> Issue | None:
        """Direct I/O is used only by models that support it."""
        value = self.override_parameters.get("reader.odirect", (self.parameters.get("reader") or {}).get("odirect"))
        models = ROUND.training.overrides.models["reader.odirect"]
        if str(value).lower() == "true" and self.benchmark_run.model not in models:
            text = f"reader.odirect is only supported by {', '.join(models)}"
            return Issue(INVALID, text, "reader.odirect", models, self.benchmark_run.model)
        return None


class CheckpointingRunRulesChecker(RunRulesChecker):
    """Checks a checkpointing run."""

    benchmark_type = BENCHMARK_TYPES.checkpointing

    def check_model(self) -> list[Issue]:
        """The model is part of the round, with a number of processes that it allows."""
        return self._issues("mlperf-model-unknown") + self._issues("mlperf-checkpoint-processes")


class KVCacheRunRulesChecker(RunRulesChecker):
    """Checks a KV cache run."""

    benchmark_type = BENCHMARK_TYPES.kv_cache

    def check_model(self) -> list[Issue]:
        """The model is part of the round."""
        return self._issues("mlperf-model-unknown")

    def check_num_users(self) -> list[Issue]:
        """There are enough users."""
        return self._issues("mlperf-kv-cache", "num_users")

    def check_duration(self) -> list[Issue]:
        """The run is long enough."""
        return self._issues("mlperf-kv-cache", "duration")

    def check_cache_configuration(self) -> list[Issue]:
        """The caches are large enough."""
        return self._issues("mlperf-kv-cache", "gpu_mem_gb", "cpu_mem_gb")

    def check_generation_mode(self) -> list[Issue]:
        """The mode is part of the round."""
        return self._issues("mlperf-kv-cache", "generation_mode")

    def check_performance_profile(self) -> list[Issue]:
        """The profile is part of the round."""
        return self._issues("mlperf-kv-cache", "performance_profile")

    def check_preview_status(self) -> list[Issue]:
        """The benchmark is a preview."""
        return self._issues("mlperf-kv-cache", "benchmark_status")


class VectorDBRunRulesChecker(RunRulesChecker):
    """Checks a vector database run."""

    benchmark_type = BENCHMARK_TYPES.vector_database

    def check_runtime(self) -> list[Issue]:
        """The run is long enough."""
        return self._issues("mlperf-vector-database", "runtime")

    def check_preview_status(self) -> list[Issue]:
        """The benchmark is a preview."""
        return self._issues("mlperf-vector-database", "benchmark_status")


class ClusterValidationRulesChecker(RulesChecker):
    """Checks the cluster of a run."""

    def __init__(self, benchmark_run: BenchmarkRun, logger: Any) -> None:
        super().__init__(logger)
        self.benchmark_run = benchmark_run

    def check_cluster_consistency(self) -> None:
        """Hosts have similar memory and the same cores, OS and kernel."""
        system = self.benchmark_run.system_info
        for message in system.validate_cluster_consistency() if system else []:
            self.issues.append(Issue(OPEN, message, severity="warning"))

    def check_minimum_memory(self) -> None:
        """The smallest host has enough memory."""
        system = self.benchmark_run.system_info
        if not system or not system.min_memory_bytes:
            text = "The memory of the smallest host is unknown"
            self.issues.append(Issue(OPEN, text, "host_memory", f">= {MINIMUM_HOST_MEMORY_GB:g}GB", None, "warning"))
        elif system.min_memory_bytes < MINIMUM_HOST_MEMORY_GB * GIB:
            self.issues.append(_issue(too_small(system.min_memory_bytes, MINIMUM_HOST_MEMORY_GB)))

    def check_mpi_collection_success(self) -> None:
        """Every host was measured, not only declared."""
        system = self.benchmark_run.system_info
        method = system.collection_method if system else "unknown"
        missing = [str(host.get("name")) for host in system.missing_hosts] if system else []
        if missing:
            text = f"Cluster info lacks hosts that returned no data: {', '.join(missing)}"
            self.issues.append(Issue(OPEN, text, "hosts", "all hosts", missing, "warning"))
        if not is_measured({"collection_method": method}):
            text = f"Cluster info comes from {method}, not from the hosts"
            self.issues.append(Issue(OPEN, text, "collection_method", "mpi", method, "info"))


class BenchmarkRulesChecker(RulesChecker):
    """Checks a finished run by every rule that CLOSED needs and no other checker has applied."""

    def __init__(self, benchmark_run: BenchmarkRun, logger: Any = None) -> None:
        super().__init__(logger)
        self.benchmark_run = benchmark_run

    def check_rules(self) -> list[Issue]:
        """The command, the workload, its utilisation, checkpoints, and what else the round needs."""
        others = (
            "mlperf-model-unknown",
            "mlperf-dataset-size",
            "mlperf-override-forbidden",
            "mlperf-checkpoint-processes",
            "mlperf-collection",
            "mlperf-clients-inconsistent",
            "mlperf-minimum-memory",
            "mlperf-kv-cache",
        )
        needed = ROUND.needs[self.benchmark_run.benchmark_type.name]
        return [issue for rule in needed if rule not in others for issue in _issues(self.benchmark_run, rule)]


class MultiRunRulesChecker(RulesChecker):
    """Checks several runs of one submission."""

    def __init__(self, benchmark_runs: Sequence[BenchmarkRun], *args: Any, logger: Any = None, **kwargs: Any) -> None:
        if not isinstance(benchmark_runs, list | tuple):
            raise TypeError("benchmark_runs must be a list or tuple")
        super().__init__(logger or (args[0] if args else None), **kwargs)
        self.benchmark_runs = list(benchmark_runs)

    def check_runs_valid(self) -> list[Issue]:
        """No run is INVALID, and none is OPEN."""
        found = []
        for run in self.benchmark_runs:
            if run.category in (INVALID, OPEN):
                text = f"Run {run.run_id} is {run.category.name}"
                found.append(Issue(run.category, text, "category", CLOSED.name, run.category.name))
            elif run.category is None:
                found.append(Issue(OPEN, f"Run {run.run_id} was not checked", "category", CLOSED.name, None))
        return found

    def check_run_consistency(self) -> Issue | None:
        """All runs have one model."""
        models = sorted({str(run.model) for run in self.benchmark_runs})
        if len(models) > 1:
            return Issue(INVALID, f"Runs have different models: {', '.join(models)}", "model", "one model", models)
        return None

    def check_benchmark_type_consistency(self) -> Issue | None:
        """All runs are of one benchmark type."""
        kinds = sorted({run.benchmark_type.name for run in self.benchmark_runs})
        if len(kinds) > 1:
            return Issue(INVALID, f"Runs have different types: {', '.join(kinds)}", "benchmark_type", "one", kinds)
        return None


class TrainingSubmissionRulesChecker(MultiRunRulesChecker):
    """Checks the training runs of a submission."""

    def check_num_runs(self) -> Issue | None:
        """There are enough runs."""
        count, needed = len(self.benchmark_runs), ROUND.training.minimum_runs
        if count < needed:
            return Issue(INVALID, f"{count} runs, at least {needed} required", "num_runs", needed, count)
        return None


class CheckpointSubmissionRulesChecker(MultiRunRulesChecker):
    """Checks the checkpointing runs of a submission."""

    def check_num_runs(self) -> list[Issue]:
        """Writes and reads of all runs add up to the required number."""
        found = []
        for what, needed in (("write", ROUND.checkpointing.writes), ("read", ROUND.checkpointing.reads)):
            counts = [count_of(_metadata(run), what) for run in self.benchmark_runs]
            if None in counts:
                text = f"The number of checkpoints to {what} is not recorded for every run"
                found.append(Issue(OPEN, text, f"num_checkpoints_{what}", needed, None))
            elif (total := sum(count or 0 for count in counts)) != needed:
                text = f"{total} checkpoints to {what}, {needed} required"
                found.append(Issue(INVALID, text, f"num_checkpoints_{what}", needed, total))
        return found


RUN_CHECKERS: dict[BENCHMARK_TYPES, type[RunRulesChecker]] = {
    BENCHMARK_TYPES.training: TrainingRunRulesChecker,
    BENCHMARK_TYPES.checkpointing: CheckpointingRunRulesChecker,
    BENCHMARK_TYPES.kv_cache: KVCacheRunRulesChecker,
    BENCHMARK_TYPES.vector_database: VectorDBRunRulesChecker,
}
SUBMISSION_CHECKERS: dict[BENCHMARK_TYPES, type[MultiRunRulesChecker]] = {
    BENCHMARK_TYPES.training: TrainingSubmissionRulesChecker,
    BENCHMARK_TYPES.checkpointing: CheckpointSubmissionRulesChecker,
}


class BenchmarkVerifier:
    """The verdict on a run, or on several: the worst of all issues.

    Takes runs, result directories and live benchmarks. `mode` is `single` or `multi`.
    """

    def __init__(self, *sources: Any, logger: Any = None) -> None:
        if not sources:
            raise ValueError("At least one run, result directory or benchmark is required")
        self.logger = logger
        self.issues: list[Issue] = []
        self.benchmark_runs = [_run(source, logger) for source in sources]
        self.mode = "single" if len(sources) == 1 else "multi"
        kinds = {run.benchmark_type for run in self.benchmark_runs}
        if len(kinds) > 1:
            raise ValueError("All runs must be of one benchmark type")
        (kind,) = kinds
        if kind not in RUN_CHECKERS or (self.mode == "multi" and kind not in SUBMISSION_CHECKERS):
            raise ValueError(f"Unsupported benchmark type: {kind}")
        self.rules_checker: RulesChecker = (
            RUN_CHECKERS[kind](self.benchmark_runs[0], logger=logger)
            if self.mode == "single"
            else SUBMISSION_CHECKERS[kind](self.benchmark_runs, logger=logger)
        )

    def verify(self) -> PARAM_VALIDATION:
        """Return CLOSED, OPEN or INVALID; `issues` says why, and each run has its own issues and category."""
        for run in self.benchmark_runs:
            run.issues = self._checked(run)
            run.category = verdict(issue.validation for issue in run.issues)
        runs = self.benchmark_runs
        self.issues = list(runs[0].issues) if self.mode == "single" else self.rules_checker.run_checks()
        for issue in self.issues:
            log(self.logger, "error" if issue.validation is INVALID else "status", str(issue))
        return verdict(issue.validation for issue in self.issues)

    def _checked(self, run: BenchmarkRun) -> list[Issue]:
        own = self.rules_checker if self.mode == "single" else RUN_CHECKERS[run.benchmark_type](run, logger=self.logger)
        found = list(own.run_checks())
        found += ClusterValidationRulesChecker(run, self.logger).run_checks()
        if run.post_execution:
            found += BenchmarkRulesChecker(run, self.logger).run_checks()
        else:  # a failed command left no metrics; before a run nothing is known about it
            found += [issue for issue in _issues(run, "mlperf-command-failed") if issue.validation is INVALID]
        return found


def _run(source: Any, logger: Any) -> BenchmarkRun:
    if isinstance(source, BenchmarkRun):
        return source
    if isinstance(source, str | os.PathLike):
        return BenchmarkRun.from_result_dir(source, logger)
    if hasattr(source, "BENCHMARK_TYPE"):
        return BenchmarkRun.from_benchmark(source, logger)
    raise TypeError(f"A run, a result directory or a benchmark is required, not {type(source).__name__}")


def _metadata(run: BenchmarkRun) -> dict[str, Any]:
    """The run in the keys of a metadata file, as Rollbook's rules read it."""
    data = run.data
    return {
        **run.metadata,
        "benchmark_type": data.benchmark_type.name,
        "model": data.model,
        "command": data.command,
        "run_datetime": data.run_datetime,
        "num_processes": data.num_processes,
        "accelerator": data.accelerator,
        "parameters": data.parameters,
        "override_parameters": data.override_parameters,
        "metrics": data.metrics,
        "system_info": data.system_info.as_dict() if data.system_info else None,
    }


def _issue(finding: Finding) -> Issue:
    """Return the issue in a finding of one of Rollbook's rules."""
    return msgspec.convert(finding.evidence["issue"], Issue)


def _issues(run: BenchmarkRun, rule: str, parameters: Sequence[str] = ()) -> list[Issue]:
    """Return the issues of one rule; that it could not be evaluated is one."""
    path = Path(run.data.result_dir) if run.data.result_dir else None
    hosts = RecordHosts(started_ns=0, ended_ns=0)
    recorded: dict[str, Any] = {}
    if path is not None:
        try:
            hosts, recorded = recorded_part(path)
        except RollbookError as error:
            log(run.logger, "warning", str(error))
    subject = RunData(hosts, metadata={**recorded, **_metadata(run)}, path=path, mlperf_round=ROUND)
    result = engine.evaluate(engine.rule(rule), subject)
    found = [_issue(finding) for finding in result.findings if "issue" in finding.evidence]
    if parameters:
        found = [issue for issue in found if issue.parameter in parameters]
    if result.is_incomplete and (not parameters or any(name in result.note for name in parameters)):
        found.append(Issue(OPEN, f"{rule} could not be evaluated: {result.note}", severity="warning"))
    return found
