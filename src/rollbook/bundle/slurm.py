"""The view of Slurm's controller, read once on the collector's machine."""

from __future__ import annotations

import datetime as dt

from rollbook.bundle.cluster import ClusterPart, Query
from rollbook.bundle.summary import ItemResult, Window

__all__ = ["ITEM", "SECONDS", "collect"]

ITEM = "slurm"
"""The item that stands for all if Slurm cannot be used here."""
SECONDS = 120.0
"""The time for all commands of Slurm together."""
EACH_SECONDS = 20.0
LIMIT = 10 << 20
COMMANDS = {
    "slurm-nodes": {
        "reasons.txt": ["sinfo", "-R", "-o", "%60E %12u %19H %N"],
        "sinfo.txt": ["sinfo", "-N", "-o", "%N %.11T %.4c %.8z %.6m %.8d %.6w %G %20E"],
        "nodes.txt": ["scontrol", "-o", "show", "node"],
    },
    "slurm-settings": {
        "config.txt": ["scontrol", "show", "config"],
        "partitions.txt": ["scontrol", "show", "partition"],
        "reservations.txt": ["scontrol", "show", "reservation"],
        "ping.txt": ["scontrol", "ping"],
    },
    "slurm-statistics": {"sdiag.txt": ["sdiag"]},
    "slurm-jobs": {"squeue.txt": ["squeue", "-a", "-o", "%i %P %j %u %T %M %l %D %R"]},
}
FIELDS = "JobID,JobName,Partition,User,State,ExitCode,DerivedExitCode,Start,End,Elapsed,NodeList,ReqTRES,Reason"


async def collect(part: ClusterPart, window: Window) -> list[ItemResult]:
    """Read the controller; what cannot be read is an item with the reason.

    Raises `RecordError` and `OSError` if files cannot be written.
    """
    tried = await part.output(["scontrol", "ping"], EACH_SECONDS)
    if tried.status == "absent" or "configuration source" in tried.reason:
        return [ItemResult(id=ITEM, status="absent", reason=tried.reason)]
    queries = [
        Query(item, file, tuple(argv), EACH_SECONDS, LIMIT)
        for item, files in COMMANDS.items()
        for file, argv in files.items()
    ]
    queries.append(Query("slurm-jobs", "sacct.txt", tuple(_accounting(window)), EACH_SECONDS, LIMIT))
    return await part.run(queries)


def _accounting(window: Window) -> list[str]:
    """The jobs of the time window, else of the last day. Slurm reads times as local ones."""
    since = _local(window.since) if window.since else "now-1days"
    until = ["-E", _local(window.until)] if window.until else []
    return ["sacct", "-P", "-a", "-D", "-o", FIELDS, "-S", since, *until]


def _local(moment: dt.datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%dT%H:%M:%S")
