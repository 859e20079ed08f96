"""Runs in a results directory of MLPerf Storage, written by its tool or by Rollbook, as rules see them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rollbook.adapters.workflow import Workflow
from rollbook.checks.mlperf_round import Round
from rollbook.checks.mlperf_values import cluster_of, parameter_or_argument, table
from rollbook.checks.run_data import BENCHMARKS, RunData, read_object
from rollbook.errors import RecordError, UsageError
from rollbook.mlperf.result_directory import is_result_directory
from rollbook.records.document import read
from rollbook.records.locate import INSIDE, is_record, locate_record
from rollbook.records.reading import read_regular
from rollbook.records.record import Record, RecordHosts
from rollbook.records.yaml import decode_yaml, read_yaml

__all__ = [
    "dlio_metadata",
    "find_runs",
    "has_run",
    "is_results_tree",
    "model_of",
    "newest_with_hosts",
    "open_run",
    "recorded_part",
]

MAX_DIRECTORIES = 100_000  # searched for runs
LARGEST = 1 << 20  # bytes of the list of overrides
OVERRIDE = "++workload."


def has_run(files: Iterable[str]) -> bool:
    """Whether the files of a directory, given by name, make it a result directory."""
    return any(name == "summary.json" or name.endswith("_metadata.json") for name in files)


def find_runs(path: Path) -> list[Path]:
    """Return the result directories at or below a path: those with a summary.json or a `*_metadata.json`.

    Result directories are not searched for others. Raises `RecordError` for a tree that is too large.
    """
    found: list[Path] = []
    for number, (directory, below, files) in enumerate(os.walk(path)):
        if number >= MAX_DIRECTORIES:
            raise RecordError(f"{path} has more than {MAX_DIRECTORIES} directories; name one below it")
        below.sort()
        if has_run(files):
            found.append(Path(directory))
            below.clear()
    return found


def is_results_tree(path: Path) -> bool:
    """Whether a directory holds runs of MLPerf Storage's benchmarks and is not itself a record of Rollbook.

    The only record in a directory outside the layout of a submission stands for that directory.
    """
    if not path.is_dir() or (path / "hosts.json").exists() or (path / INSIDE / "hosts.json").exists():
        return False
    runs = find_runs(path)
    kinds = {run: str(_metadata(run).get("benchmark_type")) for run in runs}
    if len(runs) == 1 and not is_result_directory(runs[0], kinds[runs[0]]):
        record = locate_record(runs[0])
        if is_record(record) and (record / "hosts.json").exists():
            return False
    return any(kind in BENCHMARKS for kind in kinds.values())


def open_run(path: Path, rules: Round, **options: Any) -> RunData:
    """Return one run for the rules; raises `RecordError` with the reason if it cannot be read.

    Hosts come from Rollbook's record if there is one in the result directory.
    """
    metadata = _metadata(path)
    if "problem" in metadata:
        raise RecordError(f"{path}: {metadata['problem']}")
    hosts, recorded = recorded_part(path)
    return RunData(hosts, metadata={**recorded, **metadata}, path=path, mlperf_round=rules, **options)


def recorded_part(path: Path) -> tuple[RecordHosts, dict[str, Any]]:
    """Return the hosts and the metadata that Rollbook's record adds to the files of a result directory.

    Both are empty without a record. The metadata are the exit status of the command, if the record has one; a record
    that is itself the result directory adds none, its metadata are those of the run. Raises `RecordError` for a record
    that cannot be read.
    """
    record = locate_record(path)
    if not (record / "hosts.json").exists():
        return RecordHosts(started_ns=0, ended_ns=0), {}
    if record == path:
        return read(record / "hosts.json", RecordHosts), {}
    found = Record.open(record)
    return found.hosts, {name: found.metadata[name] for name in ("exit_code",) if name in found.metadata}


def newest_with_hosts(path: Path, rules: Round, **options: Any) -> RunData:
    """Return the newest run at or below a path with information about its hosts, else the newest.

    Raises `RecordError` if no run can be read.
    """
    newest: RunData | None = None
    problem = f"{path} has no runs"
    for directory in sorted(find_runs(path), key=lambda run: run.name, reverse=True):
        try:
            run = open_run(directory, rules, **options)
        except RecordError as error:
            problem = str(error)
            continue
        if run.start or cluster_of(run.metadata).get("hosts"):
            return run
        newest = newest or run
    if newest is None:
        raise RecordError(problem)
    return newest


def _metadata(path: Path) -> dict[str, Any]:
    """The tool's metadata, or those of DLIO's files; only `problem` if neither can be used."""
    found = sorted(path.glob("*_metadata.json"))
    if len(found) > 1:
        return {"problem": f"{len(found)} files named *_metadata.json, exactly one is required"}
    if found:
        metadata = read_object(found[0])
        return {"problem": f"{found[0].name} is not a JSON object"} if metadata is None else metadata
    summary = read_object(path / "summary.json")
    return {"problem": "summary.json is not a JSON object"} if summary is None else dlio_metadata(path, summary)


def dlio_metadata(path: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what DLIO's files say about a run, by the tool's keys; only `problem` for a workflow that is unknown."""
    workload = table(_mapping(path / "dlio_config" / "config.yaml").get("workload"))
    flags = table(workload.get("workflow"))
    steps = Workflow.of(flags)
    kind = "training" if steps.trains or steps.generates else "checkpointing"
    if not flags or not any(steps):
        return {"problem": "there is no *_metadata.json, and dlio_config/config.yaml has no known workflow"}
    words = _words(path / "dlio_config" / "overrides.yaml")
    chosen = next((word.partition("=")[2] for word in words if word.startswith("workload=")), "")
    name = str(table(workload.get("model")).get("name") or chosen.rpartition("_")[0])
    changed = (word.removeprefix(OVERRIDE).partition("=") for word in words if word.startswith(OVERRIDE))
    return {
        "benchmark_type": kind,
        "model": name.replace("llama_", "llama3-").replace("_", "-"),
        "command": "run",
        "run_datetime": path.name,
        "num_processes": summary.get("num_accelerators"),
        "accelerator": chosen.rpartition("_")[2],
        "parameters": workload,
        "override_parameters": {key: value for key, _, value in changed},
        "metrics": table(summary.get("metric")),
    }


def _mapping(path: Path) -> dict[str, Any]:
    try:
        return read_yaml(path)
    except UsageError:
        return {}


def _words(path: Path) -> list[str]:
    """The strings of a YAML list: Hydra's overrides."""
    try:
        value = decode_yaml(read_regular(path, LARGEST))
    except (RecordError, ValueError):
        return []
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def model_of(metadata: Mapping[str, Any]) -> str:
    """The model of a run; for a vector database its engine and index."""
    if metadata.get("benchmark_type") != "vector_database":
        return str(metadata.get("model") or "")
    engine = parameter_or_argument(metadata, "database.database", "vdb_engine", "engine")
    index = parameter_or_argument(metadata, "index.index_type", "vdb_index", "index_type")
    return f"{engine or ''}/{index or ''}"
