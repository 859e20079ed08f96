"""Data and results of a run are on the same file system.

Why: Log files that are written to the storage under test add I/O to the measurement.
Example: /mnt/data and /mnt/results are on the same file system
Fix: Write the results to a different file system from the data set or the checkpoints, and repeat the run.
Reference: MLPerf Storage rules 3.4.2, 4.4.2 and 5.4.2
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_values import parameter, parameter_or_argument
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData, read_object
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-file-system-shared", "fail", (Benchmark,)
EVIDENCE = "fs_separation.json"
FILE_STORAGE = ("local_fs", "direct_fs", "parallel_fs", "file")
OBJECT_STORAGE = ("s3", "s3_torch", "aistore")
FILE_SCHEMES = ("file", "direct")  # with which libraries for object storage use a file system


def check(run: RunData) -> Iterator[Finding | Compared]:
    """What the tool wrote about both directories: only a test on the launching host at the time of the run counts."""
    rules = round_of(run)
    require_type(run, *rules.require(rules.separate_file_systems))
    storage = str(parameter_or_argument(run.metadata, "storage.storage_type") or FILE_STORAGE[0])
    scheme = parameter(run.metadata, "storage.storage_options.uri_scheme")
    if storage in OBJECT_STORAGE and scheme not in FILE_SCHEMES:
        raise NotApplicable(f"{storage} is object storage, which has no file system")
    if storage not in (*FILE_STORAGE, *OBJECT_STORAGE):
        raise CannotTell(f"storage type {storage} is unknown")
    directory = run.result_directory
    found = (read_object(directory / EVIDENCE) if directory else None) or {}
    same = found.get("same_filesystem")
    if not isinstance(same, bool):
        raise CannotTell(f"{EVIDENCE}, in which MLPerf Storage's tool records it, is missing or unreadable")
    yield Compared("data and results on one file system", False, same)
    if same:
        data, results = (found.get(name) or "unknown" for name in ("data_or_chkpt_path", "results_path"))
        text = f"{data} and {results} are on the same file system"
        yield finding_for(Validation.INVALID, text, "results_dir", "another file system", results)
