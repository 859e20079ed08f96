"""Too long a time passed between writing checkpoints and reading them.

Why: The reading run must start within 30 s of the end of the writing one, so that nothing is prepared in between. A
negative gap means that the clocks disagree.
Example: 226.0 s between writing (20260801_101500) and reading, at most 30 s
Fix: Start the reading run from the same script; where launching takes longer, say so in the submission.
Reference: MLPerf Storage rules 4.7.1
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rollbook.checks.mlperf import Issue, Validation, finding_for, needs_type, round_of
from rollbook.checks.rules.mlperf_checkpoint_count import count_of
from rollbook.checks.run_data import Benchmark, RunData
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Compared, Finding

ID, SEVERITY, NEEDS = "mlperf-gap", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The end of the latest run beside this one that only wrote this model, against the start of this one."""
    rules = round_of(run)
    most = rules.checkpointing.gap_seconds
    if why := needs_type(run, "checkpointing"):
        raise NotApplicable(why)
    if most is None:
        raise NotApplicable(f"round {rules.name} has no such rule")
    if not only(run.metadata, "read"):
        raise NotApplicable("not a run that only reads checkpoints")
    wrote = _writing_run(run)
    if wrote is None:
        raise CannotTell("there is no run beside this one that only writes checkpoints")
    ended, began = _time(wrote, "invocation_end_time"), _time(run.metadata, "invocation_start_time")
    gap = (began - ended).total_seconds()
    skew = max((abs(host.clock.offset_ns) for host in run.hosts_with_data if host.clock), default=0) / 1e9
    yield Compared("seconds between writing and reading", f"0 to {most:g}", gap)
    between = f"{gap:.1f} s between writing ({wrote.get('run_datetime')}) and reading"
    if gap < 0:
        text = f"{between}: the clocks of the launching hosts disagree by {-gap:.1f} s or more"
        yield finding_for(Issue(Validation.INVALID, text, "invocation_start_time", ">= 0 s", gap), clock_skew=skew)
    elif gap > most:
        known = f"; clocks of the hosts differ by up to {skew:.3f} s" if skew else ""
        text = f"{between}, at most {most:.0f} s{known}"
        yield finding_for(
            Issue(Validation.INVALID, text, "invocation_start_time", f"<= {most:.0f} s", gap), clock_skew=skew
        )


def only(metadata: Mapping[str, Any], what: str) -> bool:
    """Whether a checkpointing run does nothing but `read` or `write`."""
    other = "write" if what == "read" else "read"
    return bool(count_of(metadata, what)) and not count_of(metadata, other)


def _writing_run(run: RunData) -> Mapping[str, Any] | None:
    if run.path is None:
        return None
    here = run.path.resolve()  # `.` is its own parent
    found = [_metadata(path) for path in here.parent.glob("*/*_metadata.json") if path.parent != here]
    before, model = str(run.metadata.get("run_datetime") or ""), run.metadata.get("model")
    wrote = [
        data
        for data in found
        if only(data, "write") and data.get("model") == model and str(data.get("run_datetime") or "") <= before
    ]
    return max(wrote, key=lambda data: str(data.get("run_datetime")), default=None)


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
        raise CannotTell(f"{name} of {metadata.get('run_datetime')} is not recorded") from None
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)
