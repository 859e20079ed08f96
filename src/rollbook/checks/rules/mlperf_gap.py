"""Too much time passed between writing checkpoints and reading them.

Why: The reading run must start within 30 s of the end of the writing one, so that nothing is prepared in between. A
negative gap means that the clocks disagree.
Example: 226.0 s between writing (20260801_101500) and reading, at most 30 s
Fix: Start the reading run from the same script; if launching takes longer, state this in the submission.
Reference: MLPerf Storage rules 4.7.1
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from rollbook.checks.mlperf_values import seconds_between, time_of
from rollbook.checks.mlperf_verdict import Validation, finding_for, require_type, round_of
from rollbook.checks.rules.mlperf_checkpoint_count import count_of
from rollbook.checks.run_data import Benchmark, RunData, read_object
from rollbook.errors import CannotTell, NotApplicable
from rollbook.records.findings import Compared, Finding
from rollbook.records.locate import result_directory

ID, SEVERITY, NEEDS = "mlperf-gap", "fail", (Benchmark,)


def check(run: RunData) -> Iterator[Finding | Compared]:
    """The time from the end of the latest run next to this one that only wrote this model to the start of this one."""
    rules = round_of(run)
    require_type(run, "checkpointing")
    most = rules.require(rules.checkpointing.gap_seconds)
    if None in (count_of(run.metadata, "read"), count_of(run.metadata, "write")):
        raise CannotTell("num_checkpoints_write and num_checkpoints_read are not recorded")
    if not _does_only(run.metadata, "read"):
        raise NotApplicable("not a run that only reads checkpoints")
    wrote = _writing_run(run)
    if wrote is None:
        raise CannotTell("no run next to this one only writes checkpoints")
    ended, late = _ended(*wrote)
    gap = seconds_between(ended, _began(run.metadata, run.summary))
    if gap > most:
        gap -= late
        if gap <= most:
            raise CannotTell(f"the hosts were released up to {late:.1f} s after {ended}, the time zone is unknown")
    skew = max((abs(host.clock.offset_ns) for host in run.hosts_with_data if host.clock), default=0) / 1e9
    yield Compared("seconds between writing and reading", f"0 to {most:g}", gap)
    between = f"{gap:.1f} s between writing ({wrote[0].get('run_datetime')}) and reading"
    if gap < 0:
        text = f"{between}: the clocks of the launching hosts disagree by {-gap:.1f} s or more"
        yield finding_for(Validation.INVALID, text, "invocation_start_time", ">= 0 s", gap, clock_skew=skew)
    elif gap > most:
        known = f"; clocks of the hosts differ by up to {skew:.3f} s" if skew else ""
        text = f"{between}, at most {most:.0f} s{known}"
        yield finding_for(Validation.INVALID, text, "invocation_start_time", f"<= {most:.0f} s", gap, clock_skew=skew)


def _does_only(metadata: Mapping[str, Any], what: str) -> bool:
    """Whether a checkpointing run is known to do nothing but `read` or `write`."""
    other = "write" if what == "read" else "read"
    return bool(count_of(metadata, what)) and count_of(metadata, other) == 0


def _writing_run(run: RunData) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
    """Metadata and summary of the run that wrote what this one reads."""
    if run.path is None:
        return None
    here = result_directory(run.path.resolve())  # `.` is its own parent
    files = (path for path in here.parent.glob("*/*_metadata.json") if path.parent != here)
    found = [(read_object(path) or {}, path.parent) for path in files]
    before, model = str(run.metadata.get("run_datetime") or ""), run.metadata.get("model")
    wrote = [
        (data, path)
        for data, path in found
        if _does_only(data, "write") and data.get("model") == model and str(data.get("run_datetime") or "") <= before
    ]
    if not wrote:
        return None
    data, path = max(wrote, key=lambda one: str(one[0].get("run_datetime")))
    return data, read_object(path / "summary.json") or {}


def _began(metadata: Mapping[str, Any], summary: Mapping[str, Any]) -> dt.datetime:
    found = time_of(metadata.get("invocation_start_time")) or time_of(summary.get("start"))
    if found is None:
        raise CannotTell(f"invocation_start_time of {metadata.get('run_datetime')} is not recorded")
    return found


def _ended(metadata: Mapping[str, Any], summary: Mapping[str, Any]) -> tuple[dt.datetime, float]:
    """When the hosts were free again, and how many seconds later that may have been.

    It is the end of the invocation, else of the last collection after DLIO's end. DLIO's times have no zone, those of
    collections have: only the time between the first, which precedes DLIO's start, and the last collection is known.
    """
    if end := time_of(metadata.get("invocation_end_time")):
        return end, 0.0
    start, end = (time_of(summary.get(name)) for name in ("start", "end"))
    if start is None or end is None:
        raise CannotTell(f"invocation_end_time of {metadata.get('run_datetime')} is not recorded")
    times = [*_collections(metadata)]
    alike = [time for time in times if (time.tzinfo is None) == (end.tzinfo is None)]
    others = [time for time in times if (time.tzinfo is None) != (end.tzinfo is None)]
    end = max([end, *alike])
    collecting = seconds_between(min(others), max(others)) if others else 0.0
    return end, max(0.0, collecting - seconds_between(start, end))


def _collections(value: Any) -> Iterator[dt.datetime]:
    """The times of all collections in the metadata."""
    below = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    if isinstance(value, Mapping) and (time := time_of(value.get("collection_timestamp"))):
        yield time
    for one in below:
        yield from _collections(one)
