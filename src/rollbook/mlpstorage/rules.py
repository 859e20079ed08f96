"""MLPerf Storage's rule checkers by name, over the same numbers as Rollbook's own rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rollbook.checks.engine import evaluate
from rollbook.checks.mlperf import GIB, Issue, Validation, is_measured, verdict
from rollbook.checks.rules import module_rules
from rollbook.checks.rules.mlperf_minimum_memory import too_small
from rollbook.checks.run_data import MINIMUM_HOST_MEMORY_GB, RunData
from rollbook.mlpstorage.results import BenchmarkRun
from rollbook.records.record import Record, RecordHosts

__all__ = [
    "MINIMUM_HOST_MEMORY_GB",
    "PARAM_VALIDATION",
    "BenchmarkRulesChecker",
    "BenchmarkVerifier",
    "ClusterValidationRulesChecker",
    "Issue",
    "RulesChecker",
]

PARAM_VALIDATION = Validation
WITHOUT_HOSTS = ("mlperf-dataset-size", "mlperf-checkpoint-size", "mlperf-accelerator-memory", "mlperf-gap")


class RulesChecker:
    """Runs every method called `check_…` and gathers the issues."""

    def __init__(self, logger: Any) -> None:
        self.logger = logger
        self.issues: list[Issue] = []

    def run_checks(self) -> list[Issue]:
        """All issues, those of earlier calls forgotten."""
        self.issues = []
        for name in sorted(dir(self)):
            if name.startswith("check_"):
                getattr(self, name)()
        return self.issues


class ClusterValidationRulesChecker(RulesChecker):
    """Checks the cluster of a run."""

    def __init__(self, benchmark_run: BenchmarkRun, logger: Any) -> None:
        super().__init__(logger)
        self.benchmark_run = benchmark_run

    def check_cluster_consistency(self) -> None:
        """Hosts have like memory, cores, OS and kernel."""
        system = self.benchmark_run.system_info
        for message in system.validate_cluster_consistency() if system else []:
            self.issues.append(Issue(Validation.OPEN, message, severity="warning"))

    def check_minimum_memory(self) -> None:
        """The smallest host has enough memory; one of which nobody knows the memory is not too small."""
        system = self.benchmark_run.system_info
        known = system is not None and (system.host_info_list or system.min_memory_bytes)
        if system is not None and known and system.min_memory_bytes < MINIMUM_HOST_MEMORY_GB * GIB:
            self.issues.append(too_small(system.min_memory_bytes, MINIMUM_HOST_MEMORY_GB))

    def check_mpi_collection_success(self) -> None:
        """The hosts were looked at, not only declared."""
        system = self.benchmark_run.system_info
        method = system.collection_method if system else "unknown"
        if not is_measured({"collection_method": method}):
            message = f"Cluster info comes from {method}, not from the hosts"
            self.issues.append(Issue(Validation.OPEN, message, "collection_method", "mpi", method, "info"))


class BenchmarkRulesChecker(RulesChecker):
    """Checks the run by Rollbook's rules for MLPerf Storage; without its hosts, by those that need none."""

    def __init__(self, benchmark_run: BenchmarkRun, logger: Any) -> None:
        super().__init__(logger)
        self.benchmark_run = benchmark_run

    def check_rules(self) -> None:
        """Data set size, checkpoint size, gaps, and with a record's hosts the rest."""
        run = self.benchmark_run
        whole = run.directory is not None and (run.directory / "hosts.json").exists()
        hosts = Record.open(run.directory).hosts if whole and run.directory else RecordHosts(started_ns=0, ended_ns=0)
        subject = RunData(hosts, metadata=run.metadata, path=run.directory)
        for rule in module_rules():
            if rule.id.startswith("mlperf-") and (whole or rule.id in WITHOUT_HOSTS):
                for finding in evaluate(rule, subject).findings:
                    self.issues.append(msgspec.convert(finding.evidence["issue"], Issue))


class BenchmarkVerifier:
    """The verdict on a run: the worst of all issues."""

    def __init__(self, benchmark_run: BenchmarkRun, logger: Any = None) -> None:
        self.benchmark_run, self.logger = benchmark_run, logger
        self.issues: list[Issue] = []

    def checkers(self) -> Sequence[RulesChecker]:
        """Those that apply: the run's always, the cluster's where there are several hosts or not all were looked at."""
        system = self.benchmark_run.system_info
        found: list[RulesChecker] = [BenchmarkRulesChecker(self.benchmark_run, self.logger)]
        if system is not None and (
            system.num_hosts > 1 or not is_measured({"collection_method": system.collection_method})
        ):
            found.append(ClusterValidationRulesChecker(self.benchmark_run, self.logger))
        return found

    def verify(self) -> Validation:
        """CLOSED, OPEN or INVALID; `issues` says why."""
        self.issues = [issue for checker in self.checkers() for issue in checker.run_checks()]
        return verdict(self.issues)
