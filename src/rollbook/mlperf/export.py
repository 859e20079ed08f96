"""A record as the files that MLPerf Storage's readers expect."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from rollbook.errors import RecordError, UsageError
from rollbook.files import BY_UMASK, write_file
from rollbook.mlperf.result_directory import copy_results, result_names
from rollbook.records.document import encode
from rollbook.records.locate import result_directory
from rollbook.records.reading import require_directory, require_own, require_regular
from rollbook.records.record import Record

__all__ = ["export_mlpstorage"]

STREAMS = ("stdout", "stderr")


def export_mlpstorage(record: Record, path: Path) -> list[Path]:
    """Write the files of a record into the directory `path`, which must be empty or new; returns those written.

    They include all result files of the benchmark: summary, Hydra's configuration, files of the ranks; and the logs by
    the tool's names. Exactly one file is called `*_metadata.json`, the cluster information has no time in its name, and
    the series is written at any size. Raises `RecordError` for a result file that is gone, for one beside the record
    that is a link, FIFO or device, and for a record of another user that names files elsewhere.
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
        require_regular(log)
        try:
            shutil.copy2(log, written[-1])
        except OSError as error:
            raise RecordError(f"cannot write {written[-1]}: {error.strerror or error}") from error
    names = {stream: next((name for name in logs if name.endswith(f"{stream}.log")), None) for stream in STREAMS}
    metadata["command_output_files"] = [{"command": metadata.get("executed_command"), **names}] if logs else []
    written += copy_results(_sources(record, str(kind)), path)
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


def _sources(record: Record, kind: str) -> dict[str, Path]:
    """The result files by the name that readers expect: those beside the record, else those that its metadata name.

    Files elsewhere are read only for a record of our own: another user's could name any file that we may read.
    """
    directory = result_directory(record.path)
    require_directory(directory / "dlio_config")
    beside = result_names(map(str, (*directory.iterdir(), *directory.glob("dlio_config/*"))))
    for path in beside.values():
        require_regular(path)
    listed = {name: path for name, path in result_names(_listed(record), kind).items() if name not in beside}
    elsewhere = [str(path) for path in listed.values() if not _is_below(path, directory)]
    if elsewhere:
        require_own(record.path, f"files outside of it are not exported, such as {elsewhere[0]!r}")
    return beside | listed


def _listed(record: Record) -> list[str]:
    """The result files that the metadata name; none if that is not a list of texts."""
    found = record.metadata.get("result_files")
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else []


def _is_below(path: Path, directory: Path) -> bool:
    """Whether a file lies below a directory when all links are followed."""
    try:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))
    except ValueError:  # a NUL character
        return False
