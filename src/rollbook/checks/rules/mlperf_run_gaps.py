"""There was too long a pause between training runs of a submission.

Why: A pause would allow preparation between runs, or the removal of runs with a bad result.
Example: 20260801_160000 started 7200 s after the run before it; less than 3600 s is required
Fix: Start all runs from one script.
Reference: MLPerf Storage rules 3.2
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from rollbook.checks.mlperf_runs import runs_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, round_of
from rollbook.checks.run_data import RunData, SeveralRuns
from rollbook.errors import NotApplicable
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-run-gaps", "fail", (SeveralRuns,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The time between the starts of consecutive runs, against a multiple of the shortest run."""
    rules, runs = round_of(run), runs_of(run, "training").measured
    limit = rules.require(rules.training.gap_times_shortest)
    if len(runs) < 2:
        raise NotApplicable("there are fewer than two runs")
    most = limit * min(one.seconds for one in runs)
    gaps = [(after, (after.began - before.began).total_seconds()) for before, after in itertools.pairwise(runs)]
    yield Compared("seconds between the starts of runs", f"< {most:.0f}", max(gap for _, gap in gaps))
    for one, gap in gaps:
        if gap >= most:
            text = f"{one.name} started {gap:.0f} s after the run before it; less than {most:.0f} s is required"
            yield finding_for(Validation.INVALID, text, "run_datetime", f"< {most:.0f} s", gap)
