"""fio 3.x: its JSON output (fio(1), `--output-format=json`), from the `--output` file or from what it printed."""

from __future__ import annotations

import re
from typing import Any

from rollbook.adapters.argv import option, processes
from rollbook.adapters.base import Ran
from rollbook.adapters.fio_text import parse_text
from rollbook.adapters.results import DECODER, Results, count, rows, storable, table
from rollbook.adapters.times import inside
from rollbook.records.outcome import Outcome
from rollbook.records.record import Phase

__all__ = ["ADAPTER"]

_BEGIN = re.compile(r'\{\s*"fio version"')
_DIRECTIONS = ("read", "write", "trim")
_PERCENTILES = {"p50": "50.000000", "p95": "95.000000", "p99": "99.000000"}


class Fio:
    """The flexible I/O tester."""

    name = "fio"

    def outcome(self, ran: Ran) -> Outcome:
        """Options, and per job bandwidth, rates, completion latencies and errors; phases where fio dates its jobs."""
        results = Results(ran)
        report, printed = _report(results)
        # With --client, fio asks servers and calls the list of jobs differently.
        jobs = rows(report.get("jobs")) or rows(report.get("client_stats"))
        found = [_metrics(job) for job in jobs] or printed
        parameters = {
            "fio_version": report.get("fio version"),
            "global_options": table(report.get("global options")),
            "jobs": [{"job": job.get("jobname"), "options": table(job.get("job options"))} for job in jobs],
        }
        return Outcome(
            benchmark_type=self.name,
            command="run",
            num_processes=processes(ran.argv) or 1,
            parameters={name: value for name, value in parameters.items() if value},
            metrics={"jobs": found} if found else {},
            phases=_phases(jobs, results),
            result_files=results.files,
            notes=results.notes,
        )


def _report(results: Results) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The last complete JSON report, or else the metrics of the jobs in the report for people.

    Messages come before the JSON report, and `--status-interval` writes several.
    """
    named = option(results.ran.argv, "--output")
    path = results.ran.stdout if named in (None, "-", "/dev/stdout") else results.ran.cwd / str(named)
    text = results.text(path)
    if text is None:
        return {}, []
    report, at = {}, 0
    while begin := _BEGIN.search(text, at):
        try:
            found, at = DECODER.raw_decode(text, begin.start())
            report = storable(found)
        except (ValueError, RecursionError):
            at = begin.end()
    if report:
        return report, []
    if printed := parse_text(text):
        results.note("fio's results are rounded: they come from its text; add --output-format=json for exact values")
    else:
        results.note(f"{path} has no results of fio; add --output-format=json to its command line")
    return {}, printed


def _metrics(job: dict[str, Any]) -> dict[str, Any]:
    """Metrics of one job, in each direction with I/O. `error` is the job's error number, 0 for none."""
    found = {"job": job.get("jobname"), "host": job.get("hostname"), "group": job.get("groupid")}
    found |= {"error": job.get("error"), "total_errors": job.get("total_err")}
    for direction in _DIRECTIONS:
        did = table(job.get(direction))
        if not did.get("total_ios"):
            continue
        latency = table(did.get("clat_ns"))
        # I/O that failed has none; before 3.17 fio does not count those that have.
        latency = latency if latency.get("N", latency.get("max")) else {}
        percentiles = table(latency.get("percentile"))
        found |= {
            f"{direction}_bandwidth_bytes_per_second": did.get("bw_bytes"),
            f"{direction}_bytes": did.get("io_bytes"),
            f"{direction}_iops": did.get("iops"),
            **{f"{direction}_clat_{name}_ns": percentiles.get(at) for name, at in _PERCENTILES.items()},
            f"{direction}_clat_max_ns": latency.get("max"),
        }
    return {name: value for name, value in found.items() if value is not None}


def _phases(jobs: list[dict[str, Any]], results: Results) -> list[Phase]:
    """One phase per job name and group, from `job_start` (fio 3.36 and later) and the longest direction.

    `job_runtime` is no help: with `group_reporting` it is the sum over all processes of the group.
    """
    spans: dict[tuple[Any, Any], tuple[int, int]] = {}
    for job in jobs:
        started = count(job.get("job_start"))
        if started is None or "hostname" in job:  # a server's job is on the server's clock
            continue
        ran = max(count(table(job.get(direction)).get("runtime")) or 0 for direction in _DIRECTIONS)
        name = str(job.get("jobname")), count(job.get("groupid"))
        first, last = spans.get(name, (started, 0))
        spans[name] = min(first, started), max(last, started + ran)
    phases = [Phase(name, first * 10**6, last * 10**6) for (name, _), (first, last) in spans.items()]
    if not all(inside(phase, results.ran) for phase in phases):
        # job_start_clock_id can put it on another clock than the wall's.
        results.note("fio's job_start lies outside the run: no phases")
        return []
    return phases


ADAPTER = Fio()
