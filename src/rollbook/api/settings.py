"""The settings of a recording, and the checks before it starts."""

from __future__ import annotations

import dataclasses
import datetime as dt
import errno
import math
import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import msgspec

from rollbook import times
from rollbook.api.options import TransportOptions, as_list, check_fanout, hosts_of, transport_keywords
from rollbook.errors import UsageError
from rollbook.files import require_utf8
from rollbook.hosts import Host
from rollbook.mlperf.result_directory import Placement
from rollbook.records import signing
from rollbook.records.labels import Group, Label
from rollbook.transports.base import FANOUT
from rollbook.transports.routing import Options

__all__ = [
    "LONGEST",
    "SHORTEST",
    "RecordingOptions",
    "Settings",
    "check_interval",
    "in_group",
    "preflight",
    "settings_of",
    "working_directory",
]

ROOM = 64 << 20  # bytes that must be free before a recording starts
SHORTEST, LONGEST = 0.1, 86400.0  # seconds between samples


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a recording.

    `type` is the type of record, `interval` the seconds between samples (0: snapshots only; None: 0.5, more as the run
    grows), `placement` moves the record once the command has ended, `sign` is a key for the manifest, `share` whether
    others may read the record, `label` its name, tags and note, `args` the user's options, stored as they are.
    `bundle_on_failure` adds an issue report of the affected hosts if the run failed. `host_budget` multiplies what each
    host may send. `push` is the address of a server that gets the metrics during the recording.
    """

    hosts: list[Host] = dataclasses.field(default_factory=list)
    options: Options = dataclasses.field(default_factory=Options)
    fanout: int = FANOUT
    host_budget: float = 1.0
    results_dir: Path = Path("results")
    type: str = "record"
    interval: float | None = None
    max_samples: int = 3600
    drop_raw: bool = False
    report: bool = True
    sign: Path | None = None
    share: bool = False
    bundle_on_failure: bool = False
    push: str = ""
    label: Label = dataclasses.field(default_factory=Label)
    placement: Placement | None = None
    args: dict[str, Any] = dataclasses.field(default_factory=dict)


def settings_of(hosts: str | Sequence[str], **options: Unpack[RecordingOptions]) -> Settings:
    """The settings for hosts and keyword options; raises `UsageError` for values that cannot be used."""
    transport = transport_keywords(options, RecordingOptions)
    own: dict[str, Any] = {name: value for name, value in options.items() if name not in transport}
    for name in ("results_dir", "sign"):
        if own.get(name) is not None:
            own[name] = Path(own[name])
    own["label"] = Label.of(own.pop("name", ""), as_list(own.pop("tags", ())), own.pop("note", ""))
    return Settings(hosts=hosts_of(hosts), options=Options.of(**transport), **own)


def in_group(settings: Settings, index: int, size: int) -> Settings:
    """The settings of one of several repeats; the first one decides the id of the group."""
    group = settings.label.group
    name = group.id if group else f"{times.stamp(dt.datetime.now(dt.UTC))}-{secrets.token_hex(2)}"
    return dataclasses.replace(settings, label=msgspec.structs.replace(settings.label, group=Group(name, index, size)))


def preflight(settings: Settings) -> None:
    """Raise `UsageError` before anything starts: bad values, no space in the results directory, an unusable key."""
    results = settings.results_dir
    _check_values(settings)
    working_directory()
    require_utf8(results.absolute(), "the path of the results directory")
    try:
        results.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(results).free
    except OSError as error:
        raise UsageError(f"cannot use {results} for results: {error.strerror}") from error
    if not os.access(results, os.W_OK):
        reason = os.strerror(errno.EROFS if os.statvfs(results).f_flag & os.ST_RDONLY else errno.EACCES)
        raise UsageError(f"cannot write to {results}: {reason}")
    if free < ROOM:
        raise UsageError(f"{results} has only {free >> 20} MiB free; a recording needs {ROOM >> 20} MiB")
    if settings.sign is not None:
        signing.try_key(settings.sign)
    if settings.push:
        _check_push(settings)


def working_directory() -> Path:
    """The working directory; raises `UsageError` if it was removed."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(f"cannot use the working directory: {error.strerror}; was it removed?") from error


def check_interval(seconds: float | None) -> None:
    """Raise `UsageError` for a time between samples that is neither possible nor 0 for none."""
    if seconds and not SHORTEST <= seconds <= LONGEST:
        raise UsageError(
            f"the interval must be {SHORTEST} to {LONGEST:.0f} seconds, or 0 for snapshots only, not {seconds:g}"
        )


def _check_values(settings: Settings) -> None:
    """Raise `UsageError` for values that no recording can have."""
    check_interval(settings.interval)
    check_fanout(settings.fanout)
    if not 0 < settings.host_budget < math.inf:
        raise UsageError(f"host_budget must be positive, not {settings.host_budget}")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", settings.type):
        raise UsageError(
            f"{settings.type!r} is not a type of record: only letters, digits, '.', '_' and '-' are allowed"
        )
    if settings.max_samples == 1 or settings.max_samples < 0:
        raise UsageError(
            "max_samples must be at least 2, because the first and last sample are always kept, or 0 for all"
        )


def _check_push(settings: Settings) -> None:
    from rollbook.exports.receiver import TOKEN, Receiver  # noqa: PLC0415 - most recordings do not push

    Receiver(settings.push, os.environ.get(TOKEN, ""))
    if settings.interval == 0:
        raise UsageError("there is nothing to push: no samples are taken")
