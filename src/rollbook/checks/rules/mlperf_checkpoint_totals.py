"""Writes and reads of all checkpointing invocations do not add up.

Why: A result has a fixed number of writes and reads, in one invocation, or first all writes and then all reads.
Example: 10 writes and 0 reads in total; required: 10 writes, 10 reads
Fix: Repeat the benchmark with the required counts.
Reference: MLPerf Storage rules 4.7.1
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_runs import runs_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, round_of
from rollbook.checks.rules.mlperf_checkpoint_count import count_of
from rollbook.checks.run_data import RunData, SeveralRuns
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-checkpoint-totals", "fail", (SeveralRuns,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The sums over all invocations, and the order of writing and reading."""
    rules, runs = round_of(run).checkpointing, runs_of(run, "checkpointing").measured
    counts = [(count_of(one.metadata, "write"), count_of(one.metadata, "read")) for one in runs]
    if any(None in pair for pair in counts):
        raise CannotTell("the number of checkpoints is not recorded for every run")
    writes, reads = sum(pair[0] or 0 for pair in counts), sum(pair[1] or 0 for pair in counts)
    required = f"{rules.writes} writes, {rules.reads} reads"
    yield Compared("checkpoints of all runs", required, f"{writes} writes, {reads} reads")
    if (writes, reads) != (rules.writes, rules.reads):
        text = f"{writes} writes and {reads} reads in total; required: {required}"
        yield finding_for(Validation.INVALID, text, "num_checkpoints", required, [writes, reads])
    elif rules.split == "one or two" and len(counts) > 1 and counts[0][1]:
        text = "the first of two invocations must only write, the second only read"
        yield finding_for(Validation.INVALID, text, "num_checkpoints", required, counts)
