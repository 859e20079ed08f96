"""A record as the files that MLPerf Storage's readers expect."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from rollbook.errors import RecordError, UsageError
from rollbook.files import BY_UMASK, write_file
from rollbook.mlperf.result_directory import copy_results
from rollbook.records.document import encode
from rollbook.records.locate import result_directory
from rollbook.records.record import Record

__all__ = ["export_mlpstorage"]

STREAMS = ("stdout", "stderr")


def export_mlpstorage(record: Record, path: Path) -> list[Path]:
    """Write the files of a record into the directory `path`, which must be empty or new; returns those written.

    They include all result files of the benchmark: summary, Hydra's configuration, files of the ranks; and the logs by
    the tool's names. Exactly one file is called `*_metadata.json`, the cluster information has no time in its name, and
    the series is written at any size. Raises `RecordError` for a result file that is gone.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {path}: {error.strerror}") from error
    if any(path.iterdir()):
        raise UsageError(f"{path} is not empty")
    kind, stamp = record.metadata.get("benchmark_type"), record.metadata.get("run_datetime")
    for name in (kind, stamp):
        # They become parts of file names, and the record may come from anywhere.
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
            raise RecordError(f"{record.path} has no usable benchmark_type and run_datetime: {name!r}")
    metadata = {**record.metadata, "result_dir": str(path)}
    cluster = metadata.get("system_info") or metadata.get("cluster_information")
    written = [path / f"{kind}_{stamp}_metadata.json"]
    if cluster is not None:
        written.append(path / f"{kind}_cluster_info.json")
        write_file(written[-1], encode(cluster), mode=BY_UMASK)
    if record.series_files():
        # DuckDB is needed only where there is a series.
        from rollbook.exports.timeseries import write_timeseries  # noqa: PLC0415

        written.append(path / f"{kind}_{stamp}_timeseries.json")
        write_timeseries(record, written[-1], mode=BY_UMASK)
        about = metadata.get("timeseries_data")
        metadata["timeseries_data"] = {**(about if isinstance(about, dict) else {}), "file": written[-1].name}
    logs = _logs(record, f"{kind}_{metadata.get('command') or 'run'}")
    for name, log in logs.items():
        written.append(path / name)
        try:
            shutil.copy2(log, written[-1])
        except OSError as error:
            raise RecordError(f"cannot write {written[-1]}: {error.strerror or error}") from error
    names = {stream: next((name for name in logs if name.endswith(f"{stream}.log")), None) for stream in STREAMS}
    metadata["command_output_files"] = [{"command": metadata.get("executed_command"), **names}] if logs else []
    written += copy_results([*_beside(record), *map(str, record.metadata.get("result_files") or [])], path)
    write_file(written[0], json.dumps(metadata, indent=2).encode() + b"\n", mode=BY_UMASK)
    return written


def _logs(record: Record, stem: str) -> dict[str, Path]:
    """The logs of the tool, or else those of the record, by the names that the tool gives them."""
    found: dict[str, Path] = {}
    for stream in STREAMS:
        tool = sorted(result_directory(record.path).glob(f"*.{stream}.log"))
        ours = record.path / f"{stream}.log"
        found |= {log.name: log for log in tool} or ({f"{stem}.{ours.name}": ours} if ours.exists() else {})
    return found


def _beside(record: Record) -> list[str]:
    """Result files in the record itself or in the result directory around it."""
    directory = result_directory(record.path)
    return [str(path) for path in (*directory.iterdir(), *directory.glob("dlio_config/*")) if path.is_file()]
