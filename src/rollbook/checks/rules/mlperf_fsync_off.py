"""A checkpointing run does not flush its files to the storage.

Why: Without fsync a write ends when the page cache has the data, and the memory is measured instead of the storage.
Example: checkpoint.fsync is false
Fix: Leave fsync on, as the workload configuration has it.
Reference: MLPerf Storage rules 4.3
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_values import parameter
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-fsync-off", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The parameter, also as text."""
    require_type(run, "checkpointing")
    value = parameter(run.metadata, "checkpoint.fsync")
    word = str(value).lower()
    if word not in ("true", "false"):
        raise CannotTell("checkpoint.fsync is not recorded")
    yield Compared("checkpoint.fsync", True, declared=word == "true")
    if word == "false":
        yield finding_for(Validation.INVALID, "checkpoint.fsync is false", "checkpoint.fsync", True, False)
