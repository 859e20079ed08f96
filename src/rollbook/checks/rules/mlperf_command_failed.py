"""The benchmark's command failed, so its result does not count.

Why: A command that ends with an error has not done what the result claims.
Example: the command ended with exit status 1
Fix: Find the cause in the command's output and run it again.
Reference: MLPerf Storage rules, valid results
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.mlperf_verdict import Validation, finding_for
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-command-failed", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The exit status where it was recorded; otherwise a complete summary shows that the benchmark ended."""
    if "exit_code" in run.metadata:
        code = run.metadata["exit_code"]
        if not isinstance(code, int):
            raise CannotTell("the exit status of the command is not recorded")
        yield Compared("exit status", 0, code)
        if code:
            text = f"the command ended with exit status {code}"
            yield finding_for(Validation.INVALID, text, "exit_code", 0, code)
    elif run.summary.get("end") or run.metadata.get("metrics"):
        yield Compared("result of the benchmark", "complete", "complete")
    else:
        raise CannotTell("neither an exit status nor a complete summary.json is recorded")
