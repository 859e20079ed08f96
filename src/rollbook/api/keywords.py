"""The keyword options of the functions, typed: the same names as the options of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rollbook.api.options import TransportOptions

__all__ = ["ExecuteOptions", "RecordingOptions", "SnapshotOptions"]


class SnapshotOptions(TransportOptions, total=False):
    """Options of `snapshot`: `sources` to read (default: all), and hosts contacted in parallel (default: 64)."""

    sources: str | Sequence[str]
    fanout: int


class ExecuteOptions(TransportOptions, total=False):
    """Options of `execute`.

    `command_timeout` is the time after which the command is killed, in seconds (default: none), `max_output` the most
    bytes of output kept of each host (default: 1 MiB), `fanout` the number of hosts contacted in parallel (default:
    64). `timeout` is the time to reach a host.
    """

    command_timeout: float | None
    max_output: int
    fanout: int


class RecordingOptions(TransportOptions, total=False):
    """Options of `record` and `run`.

    `results_dir` is the directory for records (default: `results`), `type` the type of this one, `interval` the
    seconds between samples (default: 0.5, doubled as the run grows, at most 32; 0: snapshots only), `max_samples` the
    most samples stored per host (default: 3600; 0: all), `drop_raw` removes the journal once the tables are verified,
    `report` writes `report.html` (default: true), `sign` is an ssh key for the manifest, `share` lets others read the
    record as far as the umask allows, `bundle_on_failure` takes an issue report of the affected hosts if the run
    failed, `push` is the address of a Prometheus or VictoriaMetrics server that gets the metrics during the run,
    `fanout` is the number of hosts contacted in parallel (default: 64), `host_budget` multiplies what each host may
    send before it is disconnected (default: 1). `name`, `tags` and `note` label the record, for lists and comparisons.
    """

    results_dir: Path | str
    type: str
    interval: float
    max_samples: int
    drop_raw: bool
    report: bool
    sign: Path | str | None
    share: bool
    bundle_on_failure: bool
    push: str
    fanout: int
    host_budget: float
    name: str
    tags: str | Sequence[str]
    note: str
