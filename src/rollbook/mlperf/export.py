"""A record as the files that MLPerf Storage's own readers take."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from rollbook.errors import RecordError, UsageError
from rollbook.files import BY_UMASK, write_file
from rollbook.records.document import encode
from rollbook.records.record import Record

__all__ = ["export_mlpstorage"]

# Files of the benchmark itself that their readers look for beside the metadata, and those that the metadata name.
THEIRS = (
    "summary.json",
    "*_output.json",
    "*_per_epoch_stats.json",
    "dlio.log",
    "dlio_config",
    "*.stdout.log",
    "stdout.log",
    "stderr.log",
)


def export_mlpstorage(run: Record, path: Path) -> list[Path]:
    """Write the files of a record into the directory `path`, which must be empty or new; gives what was written.

    Exactly one file is called `*_metadata.json`, the cluster is in a file without a time in its name, and the series
    is written at any size.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {path}: {error.strerror}") from error
    if any(path.iterdir()):
        raise UsageError(f"{path} is not empty")
    kind, stamp = run.metadata.get("benchmark_type"), run.metadata.get("run_datetime")
    for name in (kind, stamp):
        # They become parts of file names, and the record may be anybody's.
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
            raise RecordError(f"{run.path} does not say benchmark_type and run_datetime: {name!r}")
    metadata = {**run.metadata, "result_dir": str(path)}
    cluster = metadata.get("system_info") or metadata.get("cluster_information")
    written = [path / f"{kind}_{stamp}_metadata.json"]
    if cluster is not None:
        written.append(path / f"{kind}_cluster_info.json")
        write_file(written[-1], encode(cluster), mode=BY_UMASK)
    if run.series_files():
        # DuckDB is needed only where there is a series.
        from rollbook.exports.timeseries import write_timeseries  # noqa: PLC0415

        written.append(path / f"{kind}_{stamp}_timeseries.json")
        write_timeseries(run, written[-1], mode=BY_UMASK)
        about = metadata.get("timeseries_data")
        metadata["timeseries_data"] = {**(about if isinstance(about, dict) else {}), "file": written[-1].name}
    for pattern in THEIRS:
        for found in sorted(run.path.glob(pattern)):
            written.append(path / found.name)
            try:
                (shutil.copytree if found.is_dir() else shutil.copy2)(found, written[-1])
            except OSError as error:
                raise RecordError(f"cannot write {written[-1]}: {error.strerror or error}") from error
    write_file(written[0], json.dumps(metadata, indent=2).encode() + b"\n", mode=BY_UMASK)
    return written
