"""A checkpointing run writes or reads a different number of checkpoints than the round requires.

Why: A result is the mean over a fixed number of checkpoints, written and read in one invocation or in two.
Example: 5 writes and 5 reads; 10 and 10 in one invocation, or 10 and 0 followed by 0 and 10, are required
Fix: Set the number of checkpoints to write and to read to the required ones.
Reference: MLPerf Storage rules 4.7
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rollbook.checks.mlperf_values import parameter, table
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-checkpoint-count", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """Writes and reads of this invocation; sums over invocations are judged for the group."""
    require_type(run, "checkpointing")
    rules = round_of(run).checkpointing
    writes, reads = count_of(run.metadata, "write"), count_of(run.metadata, "read")
    if writes is None or reads is None:
        raise CannotTell("num_checkpoints_write and num_checkpoints_read are not recorded")
    wanted, done = f"{rules.writes} writes, {rules.reads} reads", f"{writes} writes, {reads} reads"
    yield Compared("checkpoints", wanted, declared=done)
    whole_or_half = [(rules.writes, rules.reads), (rules.writes, 0), (0, rules.reads)]
    if writes + reads == 0 or (rules.split == "one or two" and (writes, reads) not in whole_or_half):
        text = (
            f"{writes} writes and {reads} reads; {rules.writes} and {rules.reads} in one invocation, or "
            f"{rules.writes} and 0 followed by 0 and {rules.reads}, are required"
        )
        yield finding_for(Validation.INVALID, text, "num_checkpoints", wanted, done)


def count_of(metadata: Mapping[str, Any], what: str) -> int | None:
    """Return how many checkpoints a run was to `write` or `read`; None if that is not recorded."""
    name = f"num_checkpoints_{what}"
    value = table(metadata.get("args")).get(name)
    value = parameter(metadata, f"checkpoint.{name}") if value is None else value
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return count if count >= 0 else None
