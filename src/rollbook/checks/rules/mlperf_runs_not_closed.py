"""A run of a submission is not CLOSED.

Why: All runs of a model are submitted together: one run that is OPEN or INVALID makes the whole result OPEN or INVALID.
Example: 20260801_120000 is INVALID
Fix: Remove the cause in that run, then repeat all runs of this model.
Reference: MLPerf Storage rules, closed and open division
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_runs import runs_of
from rollbook.checks.mlperf_verdict import Validation, finding_for
from rollbook.checks.run_data import RunData, SeveralRuns
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-runs-not-closed", "fail", (SeveralRuns,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The verdict of each measured run."""
    runs = runs_of(run).measured
    verdicts = [one.verdict or "not judged" for one in runs]
    yield Compared("verdicts of the runs", "CLOSED", {word: verdicts.count(word) for word in dict.fromkeys(verdicts)})
    for one in runs:
        if one.verdict in ("INVALID", "OPEN"):
            text = f"{one.name} is {one.verdict}"
            yield finding_for(Validation[one.verdict], text, "verification", "CLOSED", one.verdict)
    if waiting := [one.name for one in runs if one.verdict is None]:
        raise CannotTell(f"there is no verdict on {', '.join(waiting)}")
