"""Whether a directory is on a file system that all hosts share, by the name of the tool's newest version."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollbook.collect.gather import gather
from rollbook.errors import RollbookError, UsageError
from rollbook.files import BY_UMASK, write_file
from rollbook.hosts import fold, parse_hosts
from rollbook.mlpstorage.collector import host_names
from rollbook.mlpstorage.logs import log
from rollbook.protocol.plan import Plan
from rollbook.records.hosts import HostResult
from rollbook.sources.base import Facts, File
from rollbook.transports.routing import Options, route

__all__ = ["FileSystemError", "run_shared_fs_probe"]

NAME = ".mlpstorage-shared-fs-probe-"
SPECIAL = frozenset("*[]{}\t\n")  # wildcards and separators in orders of the agent


class FileSystemError(Exception):
    """A directory that a run cannot use; `path` is the directory and `operation` what was tried."""

    def __init__(self, message: str, path: str = "", operation: str = "") -> None:
        super().__init__(message)
        self.path, self.operation = path, operation


class Mark(Facts):
    """The content of the file that every host must see."""

    text: str


def _mark(text: str) -> Mark:
    return Mark(text)


def run_shared_fs_probe(  # noqa: PLR0917 - the tool's signature
    destination: str,
    hosts: Sequence[str] | None,
    run_uuid: str,
    logger: Any,
    mpi_bin: str | None = None,
    allow_run_as_root: bool = False,
    timeout_seconds: float = 60,
    ssh_username: str | None = None,
    **options: Any,
) -> None:
    """Write a file into the directory on this machine and read it on all hosts, over MPI or, without `mpi_bin`, ssh.

    Fewer than two hosts need no test. Raises `FileSystemError` with the names of the hosts that do not see the file,
    or that could not be reached. The file is removed in any case. Other keyword arguments are fields of
    `rollbook.transports.Options`.
    """
    names = host_names(hosts or [])
    if len(names) < 2:
        log(logger, "debug", "Shared file system: one host needs no test")
        return
    launcher = {"mpi_bin": mpi_bin, "allow_run_as_root": allow_run_as_root} if mpi_bin else {}
    try:
        way = Options.of(via="mpi" if mpi_bin else "auto", timeout=timeout_seconds, **{**launcher, **options})
        accounts = [f"{ssh_username}@{name}" if ssh_username else name for name in names]
        results = _read_everywhere(destination, accounts, run_uuid, way)
    except (RollbookError, OSError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise _failed(logger, destination, f"cannot test {destination}: {why}") from error
    lost = [f"{result.name}: {result.reason or result.status}" for result, _ in results if not result.gave_data]
    apart = [result.name for result, sees in results if result.gave_data and not sees]
    if apart:
        text = f"{destination} is not on a file system that all hosts share: {fold(apart)} did not see a file of it"
        raise _failed(logger, destination, "; ".join([text, *lost]))
    if lost:
        raise _failed(logger, destination, f"cannot test {destination} on all hosts: {'; '.join(lost)}")


def _read_everywhere(
    destination: str, names: Sequence[str], run_uuid: str, way: Options
) -> list[tuple[HostResult, bool]]:
    """Return for each host its result, and whether it saw what this machine wrote into the directory."""
    path, content = Path(destination).absolute() / f"{NAME}{run_uuid}", secrets.token_hex(16)
    if SPECIAL & set(str(path)) or "/" in run_uuid:
        raise UsageError("its name has characters with a special meaning")
    plan = Plan.of([File(str(path), _mark, name="shared_fs")])
    write_file(path, content.encode(), mode=BY_UMASK)
    try:
        reading = gather(parse_hosts(names), route(way), plan, timeout=way.timeout, fanout=len(names))
        results = asyncio.run(reading)
    finally:
        path.unlink(missing_ok=True)
    return [(result, result.facts.get("shared_fs") == Mark(content)) for result in results]


def _failed(logger: Any, destination: str, text: str) -> FileSystemError:
    log(logger, "error", text)
    return FileSystemError(text, destination, "shared-fs-probe")
