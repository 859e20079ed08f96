"""The time between writing and reading checkpoints is too long.

Why: The reading run must start within 30 s after the writing run. A negative time means that clocks disagree.
Example: 226.0 s between writing (20260801_101500) and reading, at most 30 s allowed
Fix: Start the reading run from the same script. If the launch itself takes longer, explain it in the submission.
Reference: MLPerf Storage rules 4.7.1
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rollbook.checks.mlperf import Issue, Validation, finding_for, parameter
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Finding

ID, SEVERITY, NEEDS = "mlperf-gap", "fail", (Benchmark,)
MAX_SECONDS = 30.0


def check(run: RunData) -> Iterator[Finding]:
    """Compare the start of this run with the end of the latest writing run of the same model in the same directory."""
    if run.metadata.get("benchmark_type") != "checkpointing" or not _does_only(run.metadata, "read"):
        raise NotApplicable("not a read-only checkpointing run")
    writing = _writing_run(run)
    if writing is None:
        raise CannotTell("no write-only checkpointing run found in the same directory")
    ended, began = _time(writing, "invocation_end_time"), _time(run.metadata, "invocation_start_time")
    gap = (began - ended).total_seconds()
    skew = max((abs(host.clock.offset_ns) for host in run.hosts_with_data if host.clock), default=0) / 1e9
    between = f"{gap:.1f} s between writing ({writing.get('run_datetime')}) and reading"
    if gap < 0:
        text = f"{between}: clocks of the launching hosts disagree by at least {-gap:.1f} s"
        yield finding_for(Issue(Validation.INVALID, text, "invocation_start_time", ">= 0 s", gap), clock_skew=skew)
    elif gap > MAX_SECONDS:
        clocks = f"; clocks of the hosts differ by up to {skew:.3f} s" if skew else ""
        text = f"{between}, at most {MAX_SECONDS:.0f} s allowed{clocks}"
        issue = Issue(Validation.INVALID, text, "invocation_start_time", f"<= {MAX_SECONDS:.0f} s", gap)
        yield finding_for(issue, clock_skew=skew)


def _does_only(metadata: Mapping[str, Any], what: str) -> bool:
    """Whether a checkpointing run only does `what`: `read` or `write`."""
    other = "write" if what == "read" else "read"
    return _count(metadata, what) > 0 and _count(metadata, other) <= 0


def _count(metadata: Mapping[str, Any], what: str) -> int:
    """The number of checkpoints, which may be text from a command line; 0 if not given."""
    try:
        return int(parameter(metadata, f"checkpoint.num_checkpoints_{what}") or 0)
    except (TypeError, ValueError, OverflowError):
        return 0


def _writing_run(run: RunData) -> Mapping[str, Any] | None:
    if run.path is None:
        return None
    here = run.path.resolve()  # `.` is its own parent
    found = [_metadata(path) for path in here.parent.glob("*/*_metadata.json") if path.parent != here]
    before, model = str(run.metadata.get("run_datetime") or ""), run.metadata.get("model")
    writing = [
        data
        for data in found
        if _does_only(data, "write") and data.get("model") == model and str(data.get("run_datetime") or "") <= before
    ]
    return max(writing, key=lambda data: str(data.get("run_datetime")), default=None)


def _metadata(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _time(metadata: Mapping[str, Any], name: str) -> dt.datetime:
    try:
        time = dt.datetime.fromisoformat(str(metadata.get(name)))
    except ValueError:
        raise CannotTell(f"{metadata.get('run_datetime')} has no {name}") from None
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)
