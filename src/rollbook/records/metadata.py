"""`<type>_<stamp>_metadata.json`: the keys that MLPerf Storage's readers expect, and additional ones."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rollbook import times
from rollbook.records.cluster import ClusterInformation
from rollbook.records.hosts import HostResult
from rollbook.records.locate import LOGS
from rollbook.records.outcome import Outcome
from rollbook.records.record import RecordHosts

__all__ = ["metadata", "snapshots"]


def snapshots(start: Sequence[HostResult], end: Sequence[HostResult]) -> dict[str, Any]:
    """Start and end of the run as `cluster_snapshots`; a side without data is null, never a copy of the other."""
    sides = {
        name: ClusterInformation.of(results) if any(result.gave_data for result in results) else None
        for name, results in (("start", start), ("end", end))
    }
    methods = {name for side in sides.values() if side is not None for name in side.collection_method.split("+")}
    return {**sides, "collection_method": "+".join(sorted(methods)) or "unknown"}


def metadata(
    *,
    stamp: str,
    result_dir: str,
    argv: Sequence[str],
    args: dict[str, Any],
    hosts: RecordHosts,
    outcome: Outcome,
    command: Mapping[str, int],
) -> dict[str, Any]:
    """All keys of one run. Unknown values are omitted or null, never invented.

    `command` describes the wrapped command: started_ns, ended_ns, code. The run time is the command's; the invocation
    lasts from before the start snapshot until after the end snapshot.
    """
    cluster = snapshots(hosts.start, hosts.end)
    line = shlex.join(argv)
    ended = "ended_ns" in command
    began_ns, ended_ns = hosts.started_ns, hosts.ended_ns
    if ended:  # the start may be missing in a damaged journal
        began_ns, ended_ns = command.get("started_ns", began_ns), command["ended_ns"]
    return {
        "benchmark_type": outcome.benchmark_type,
        "model": outcome.model,
        "command": outcome.command,
        "run_datetime": stamp,
        "num_processes": outcome.num_processes,
        "accelerator": outcome.accelerator,
        "result_dir": result_dir,
        "parameters": outcome.parameters,
        "override_parameters": outcome.override_parameters,
        "system_info": cluster["start"],
        "cluster_information": cluster["start"],
        "cluster_snapshots": cluster,
        "timeseries_data": None,
        "runtime": (ended_ns - began_ns) / 1e9,
        "verification": None,
        "executed_command": line,
        "command_output_files": [{"command": line, "stdout": LOGS[0], "stderr": LOGS[1]}] if argv else [],
        "args": args,
        "invocation_start_time": times.iso_time(hosts.started_ns),
        "invocation_end_time": times.iso_time(hosts.ended_ns),
        "end_datetime": times.stamp(times.from_ns(ended_ns)),
        "provenance_file": None,
        "exit_code": command.get("code"),
        "coverage": hosts.coverage,
        "metrics": outcome.metrics,
        "result_files": outcome.result_files,
        "notes": list(outcome.notes),
        "phases": hosts.phases,
    }
