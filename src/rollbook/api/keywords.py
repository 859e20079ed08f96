"""The keyword options of the functions, typed: the same names as the options of the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

__all__ = ["RecordingOptions", "SnapshotOptions", "TransportOptions"]


class TransportOptions(TypedDict, total=False):
    """How hosts are reached: the fields of `rollbook.transports.Options`."""

    via: str
    fallback: str | None
    timeout: float
    ssh_user: str | None
    ssh_config: str | None
    ssh_options: str | Sequence[str]
    python: str | None
    slurm_args: str
    mpi_bin: str
    mpi_args: str
    allow_run_as_root: bool
    oversubscribe: bool
    connect_back: str | None


class SnapshotOptions(TransportOptions, total=False):
    """Options of `snapshot`: `sources` to read (default: all), and hosts contacted in parallel (default: 64)."""

    sources: str | Sequence[str]
    fanout: int


class RecordingOptions(TransportOptions, total=False):
    """Options of `record` and `run`.

    `results_dir` is the directory for records (default: `results`), `type` the type of this one, `interval` the
    seconds between samples (default: 10; 0: snapshots only), `max_samples` the most samples stored per host (default:
    3600; 0: all), `drop_raw` removes the journal once the tables are verified, `report` writes `report.html`
    (default: true), `sign` is an ssh key for the manifest, `share` lets others read the record as far as the umask
    allows, `fanout` is the number of hosts contacted in parallel (default: 64).
    """

    results_dir: Path | str
    type: str
    interval: float
    max_samples: int
    drop_raw: bool
    report: bool
    sign: Path | str | None
    share: bool
    fanout: int
