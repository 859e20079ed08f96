"""Results of a benchmark on disk and as rules see them, by the names MLPerf Storage's code uses.

Reading is lenient: what cannot be read is logged and None. With two metadata files in one directory, neither is used,
and there is no run to be extracted.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollbook.adapters.results import count
from rollbook.checks.dataset import DatasetSize, column_bytes
from rollbook.checks.mlperf_values import GIB
from rollbook.checks.verify import NEEDED
from rollbook.errors import CannotTell, RecordError
from rollbook.mlperf.runs import dlio_metadata, has_run
from rollbook.mlpstorage.cluster import ClusterInformation
from rollbook.mlpstorage.config import BENCHMARK_TYPES, EXIT_CODE, PARAM_VALIDATION, ROUND
from rollbook.mlpstorage.hosts import dict_of
from rollbook.mlpstorage.issues import Issue
from rollbook.mlpstorage.logs import log
from rollbook.records.reading import read_target
from rollbook.records.yaml import LARGEST, decode_yaml

__all__ = [
    "BenchmarkInstanceExtractor",
    "BenchmarkResult",
    "BenchmarkRun",
    "BenchmarkRunData",
    "DLIOResultParser",
    "ProcessedRun",
    "ResultFilesExtractor",
    "RunID",
    "calculate_training_data_size",
    "generate_output_location",
    "get_runs_files",
]

MAX_PROCESSES = 1 << 24


@dataclasses.dataclass(frozen=True)
class RunID:
    """What identifies a run."""

    program: str
    command: str
    model: str
    run_datetime: str

    def __str__(self) -> str:
        return "_".join(str(part) for part in (self.program, self.command, self.model, self.run_datetime) if part)


@dataclasses.dataclass
class ProcessedRun:
    """A run that was checked."""

    run_id: RunID
    benchmark_type: str
    run_parameters: dict[str, Any]
    run_metrics: dict[str, Any]
    issues: list[Issue] = dataclasses.field(default_factory=list)

    def is_valid(self) -> bool:
        """Whether no issue is INVALID."""
        return all(issue.validation is not PARAM_VALIDATION.INVALID for issue in self.issues)

    def is_closed(self) -> bool:
        """Whether it is valid and no issue is OPEN."""
        return all(issue.validation is PARAM_VALIDATION.CLOSED for issue in self.issues)


@dataclasses.dataclass
class BenchmarkRunData:
    """What rules need of a run."""

    benchmark_type: BENCHMARK_TYPES
    model: str | None
    command: str | None
    run_datetime: str
    num_processes: int
    parameters: dict[str, Any]
    override_parameters: dict[str, Any]
    system_info: ClusterInformation | None = None
    metrics: dict[str, Any] | None = None
    result_dir: str | None = None
    accelerator: str | None = None
    end_datetime: str = ""


class BenchmarkResult:
    """The files of one run: metadata, DLIO's summary and configuration, and the cluster information."""

    def __init__(self, benchmark_result_root_dir: str | os.PathLike[str], logger: Any) -> None:
        self.benchmark_result_root_dir, self.logger = benchmark_result_root_dir, logger
        root = Path(benchmark_result_root_dir)
        self.problem = ""
        """Why no run can be extracted from these files: it would be a guess."""
        self.issues: list[Issue] = []
        self.metadata = self._metadata(root)
        self.summary = self._json(root / "summary.json")
        self.hydra_configs: dict[str, Any] = {}
        for path in sorted((root / "dlio_config").glob("*.yaml")):
            if (content := _yaml(path)) is not None:
                self.hydra_configs[path.name] = content
        clusters = sorted(root.glob("*_cluster_info.json"))
        self.cluster_info = self._json(clusters[0]) if clusters else None
        for key in ("cluster_information", "system_info"):
            found = (self.metadata or {}).get(key)
            if self.cluster_info is None and isinstance(found, dict):
                self.cluster_info = found

    def _metadata(self, root: Path) -> dict[str, Any] | None:
        found = sorted(root.glob("*_metadata.json"))
        if len(found) > 1:
            self.problem = f"{len(found)} files named *_metadata.json, not one"
            log(self.logger, "error", f"Failed to load {root}: {self.problem}")
        return self._json(found[0]) if len(found) == 1 else None

    def _json(self, path: Path) -> dict[str, Any] | None:
        if not path.exists():
            return None
        try:
            data = json.loads(read_target(path))
        except (RecordError, ValueError, RecursionError) as error:
            log(self.logger, "error", f"Failed to load {path}: {error}")
            return None
        log(self.logger, "verbose", f"Loaded {path}")
        return data if isinstance(data, dict) else None


def _yaml(path: Path) -> Any:
    try:
        return decode_yaml(read_target(path, LARGEST))
    except (RecordError, ValueError):
        return None


class BenchmarkInstanceExtractor:
    """Takes what rules need from a benchmark before or during its run."""

    @staticmethod
    def extract(benchmark: Any) -> BenchmarkRunData:
        """Return the data of a live benchmark; attributes that it lacks are empty."""
        args, metadata = getattr(benchmark, "args", None), getattr(benchmark, "metadata", None)
        parameters = getattr(benchmark, "combined_params", None)
        if not parameters and isinstance(metadata, Mapping):
            parameters = metadata.get("parameters")
        return BenchmarkRunData(
            benchmark_type=getattr(benchmark, "BENCHMARK_TYPE", None) or BENCHMARK_TYPES.training,
            model=getattr(args, "model", None),
            command=getattr(args, "command", None),
            run_datetime=getattr(benchmark, "run_datetime", "") or "",
            num_processes=getattr(args, "num_processes", 0) or 0,
            parameters=dict(parameters or {}),
            override_parameters=dict(getattr(benchmark, "params_dict", None) or {}),
            system_info=getattr(benchmark, "cluster_information", None),
            metrics=None,
            result_dir=getattr(benchmark, "run_result_output", None),
            accelerator=getattr(args, "accelerator_type", None),
        )


class DLIOResultParser:
    """Reads a run from DLIO's own files."""

    def __init__(self, logger: Any = None) -> None:
        self.logger = logger

    def parse(self, result_dir: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None) -> BenchmarkRunData:
        """Return the data of a run; raises `ValueError` without a usable summary or a workflow that is known."""
        root = Path(result_dir)
        summary = BenchmarkResult(root, self.logger).summary
        if summary is None:
            raise ValueError(f"No summary.json found in {result_dir}")
        found = dlio_metadata(root, summary)
        if "problem" in found:
            raise ValueError(f"{result_dir}: {found['problem']}")
        processes = count(found["num_processes"] or 0)
        if processes is None or processes > MAX_PROCESSES:
            raise ValueError(f"{result_dir}: num_accelerators in summary.json is not a number of processes")
        system = ClusterInformation.from_dlio_summary_json(summary, self.logger, root)
        if system is None:
            system = ClusterInformation.from_dict((metadata or {}).get("cluster_information"), self.logger)
        found |= {
            "run_datetime": summary.get("start") or "",
            "num_processes": processes,
            "accelerator": found["accelerator"] or None,
            "end_datetime": summary.get("end"),
        }
        return _run_data(found, system, result_dir)


class ResultFilesExtractor:
    """Reads a run from its directory: the tool's metadata where they are complete, else DLIO's files."""

    def __init__(self, result_parser: Any = None) -> None:
        self.result_parser = result_parser

    def extract(self, result_dir: str | os.PathLike[str], logger: Any = None) -> BenchmarkRunData:
        """Return the data of the run; raises `ValueError` for a directory without a readable result."""
        result = BenchmarkResult(result_dir, logger)
        if result.problem:
            raise ValueError(f"{result_dir}: {result.problem}")
        metadata = result.metadata or {}
        if any(key not in metadata for key in NEEDED):
            found: BenchmarkRunData = (self.result_parser or DLIOResultParser(logger)).parse(result_dir, metadata)
            return found
        system = ClusterInformation.from_dict(result.cluster_info, logger)
        if system is None and result.summary:
            system = ClusterInformation.from_dlio_summary_json(result.summary, logger, Path(result_dir))
        metrics = metadata.get("metrics") or (result.summary or {}).get("metric")
        return _run_data({**metadata, "metrics": metrics}, system, result_dir)


def _run_data(
    metadata: Mapping[str, Any], system: ClusterInformation | None, result_dir: str | os.PathLike[str]
) -> BenchmarkRunData:
    """Return the data of a run from its metadata, by the tool's keys; raises `ValueError` for another benchmark."""
    metrics, kind = metadata.get("metrics"), str(metadata["benchmark_type"])
    if kind not in BENCHMARK_TYPES.__members__:
        raise ValueError(f"{result_dir}: {kind!r} is not a benchmark of MLPerf Storage")
    return BenchmarkRunData(
        benchmark_type=BENCHMARK_TYPES[kind],
        model=metadata.get("model"),
        command=metadata.get("command"),
        run_datetime=str(metadata["run_datetime"]),
        num_processes=metadata["num_processes"],
        parameters=dict_of(metadata["parameters"]),
        override_parameters=dict_of(metadata.get("override_parameters")),
        system_info=system,
        metrics=metrics if isinstance(metrics, dict) else None,
        result_dir=str(result_dir),
        accelerator=metadata.get("accelerator"),
        end_datetime=str(metadata.get("end_datetime") or ""),
    )


class BenchmarkRun:
    """One run as rules see it, from its files after the run or from a benchmark object before it."""

    def __init__(
        self,
        benchmark_result: Any = None,
        benchmark_instance: Any = None,
        logger: Any = None,
        *,
        data: BenchmarkRunData | None = None,
    ) -> None:
        if isinstance(benchmark_result, BenchmarkRunData):  # the order (data, logger)
            benchmark_result, benchmark_instance, logger, data = None, None, benchmark_instance, benchmark_result
        given = [one for one in (data, benchmark_result, benchmark_instance) if one is not None]
        if not given:
            raise ValueError("Either data, benchmark_result, or benchmark_instance must be provided")
        if len(given) > 1:
            raise ValueError("Only one of data, benchmark_result, or benchmark_instance can be provided")
        self.logger = logger
        self.metadata: dict[str, Any] = {}
        self.summary: dict[str, Any] | None = None
        self.issues: list[Issue] = []
        self.category: Any = None
        if benchmark_result is not None:
            self.metadata, self.summary = benchmark_result.metadata or {}, benchmark_result.summary
            data = ResultFilesExtractor().extract(benchmark_result.benchmark_result_root_dir, logger)
        elif benchmark_instance is not None:
            live = getattr(benchmark_instance, "metadata", None)
            self.metadata = dict(live) if isinstance(live, Mapping) else {}
            data = BenchmarkInstanceExtractor.extract(benchmark_instance)
        assert data is not None
        self.data = data

    @classmethod
    def from_benchmark(cls, benchmark: Any, logger: Any = None) -> BenchmarkRun:
        """Return the run of a live benchmark."""
        return cls(benchmark_instance=benchmark, logger=logger)

    @classmethod
    def from_result_dir(cls, result_dir: str | os.PathLike[str], logger: Any = None) -> BenchmarkRun:
        """Return the run in a directory; raises `ValueError` if there is none."""
        return cls(benchmark_result=BenchmarkResult(result_dir, logger), logger=logger)

    @classmethod
    def from_data(cls, data: BenchmarkRunData, logger: Any = None) -> BenchmarkRun:
        """Return the run with that data."""
        return cls(data=data, logger=logger)

    if TYPE_CHECKING:  # the fields of its data, as properties

        def __getattr__(self, name: str) -> Any: ...

    @property
    def run_id(self) -> RunID:
        """What identifies the run."""
        data = self.data
        return RunID(data.benchmark_type.name, data.command or "", data.model or "", data.run_datetime)

    @property
    def post_execution(self) -> bool:
        """Whether the run has metrics."""
        return self.data.metrics is not None

    def as_dict(self) -> dict[str, Any]:
        """Return the run for a report."""
        data = self.data
        found: dict[str, Any] = {
            "run_id": str(self.run_id),
            "benchmark_type": data.benchmark_type.name,
            "model": data.model,
            "command": data.command,
            "num_processes": data.num_processes,
            "parameters": data.parameters,
            "system_info": data.system_info.as_dict() if data.system_info else None,
            "metrics": data.metrics,
        }
        return {**found, "accelerator": data.accelerator} if data.accelerator else found


for _field in dataclasses.fields(BenchmarkRunData):
    setattr(BenchmarkRun, _field.name, property(operator.attrgetter(f"data.{_field.name}")))


def get_runs_files(results_dir: str | os.PathLike[str], logger: Any = None) -> list[BenchmarkRun]:
    """Return every run below a directory; one that cannot be read is logged and skipped."""
    if not Path(results_dir).exists():
        log(logger, "error", f"Results directory not found: {results_dir}")
        return []
    runs = []
    for root, below, files in os.walk(results_dir):
        below.sort()
        if has_run(files):
            try:
                runs.append(BenchmarkRun.from_result_dir(root, logger))
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                log(logger, "warning", f"Failed to load run from {root}: {error}")
    return runs


def generate_output_location(benchmark: Any, datetime_str: str | None = None, **_: Any) -> str:
    """Return the result directory of a live benchmark; ends the program for a type without one, as the tool does."""
    args, kind = benchmark.args, benchmark.BENCHMARK_TYPE
    stamp = datetime_str or getattr(benchmark, "run_datetime", None) or ""
    if kind in (BENCHMARK_TYPES.training, BENCHMARK_TYPES.checkpointing) and not hasattr(args, "model"):
        raise ValueError(f"Model name is required for {kind.name} benchmark output location")
    parts = {
        BENCHMARK_TYPES.training: (getattr(args, "model", ""), getattr(args, "command", "")),
        BENCHMARK_TYPES.checkpointing: (getattr(args, "model", ""),),
        BENCHMARK_TYPES.vector_database: (getattr(args, "command", ""),),
    }
    if kind not in parts:
        sys.stderr.write(f"{getattr(kind, 'name', kind)} has no output location\n")
        sys.exit(EXIT_CODE.GENERAL_ERROR)
    return str(Path(args.results_dir, kind.name, *parts[kind], stamp))


def calculate_training_data_size(  # noqa: PLR0917 - the tool's signature
    args: Any,
    cluster_information: Any,
    dataset_params: Mapping[str, Any],
    reader_params: Mapping[str, Any],
    logger: Any,
    num_processes: int | None = None,
) -> tuple[int, int, int]:
    """Return files, subfolders and bytes of the smallest data set that CLOSED allows; declared memory counts first."""
    memory, hosts = getattr(args, "client_host_memory_in_gb", None), getattr(args, "num_client_hosts", None)
    hosts = hosts or len(getattr(args, "hosts", None) or [])
    if args and memory and hosts:
        total, processes = int(memory * GIB) * hosts, getattr(args, "num_processes", None) or num_processes
    elif cluster_information is not None:
        total, processes = cluster_information.total_memory_bytes, num_processes or getattr(args, "num_processes", None)
    else:
        raise ValueError("Either args or cluster_information is required")
    samples, record = dataset_params["num_samples_per_file"], dataset_params.get("record_length_bytes")
    if record is None:
        try:
            record = column_bytes(dataset_params)
        except CannotTell:
            record = None
    if record is None:
        log(logger, "warning", "The record length is unknown; only the number of steps decides")
    rules = ROUND.training
    found = DatasetSize(
        steps=rules.steps,
        times_memory=rules.times_memory,
        rounded_up=rules.files == "rounded up",
        batch_size=reader_params["batch_size"],
        accelerators=processes or 0,
        record_bytes=record or 1,
        samples_per_file=samples,
        memory_bytes=total if record else 0,
        memory_origin="of the clients",
    )
    reason = "the memory of the clients" if found.by_memory > found.by_steps else f"{rules.steps} steps"
    log(logger, "result", f"Minimum file count set by {reason}")
    return found.files, 0, int(found.files * samples * (record or 0))
