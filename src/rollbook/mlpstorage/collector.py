"""MLPerf Storage's collectors over Rollbook's agent and transports: same classes, same signatures, every host named.

A host that failed is in `data` with its error and is logged; a method that failed is never replaced by another
without a message.
"""

from __future__ import annotations

import abc
import dataclasses
import shutil
import socket
from collections.abc import Sequence
from typing import Any

import msgspec

from rollbook.api.snapshot import snapshot
from rollbook.errors import RollbookError
from rollbook.hosts import is_local, parse_hosts
from rollbook.mlpstorage.logs import log
from rollbook.mlpstorage.shapes import failed_host, raw_host
from rollbook.records.hosts import HostResult
from rollbook.times import iso_now

__all__ = [
    "LOCALHOST_IDENTIFIERS",
    "ClusterCollectorInterface",
    "CollectionResult",
    "LocalCollectorInterface",
    "MPIClusterCollector",
    "SSHClusterCollector",
    "TimeSeriesCollectorInterface",
    "collect_cluster_info",
    "collect_local_system_info",
    "host_names",
]

LOCALHOST_IDENTIFIERS = ("localhost", "127.0.0.1", "::1")


@dataclasses.dataclass
class CollectionResult:
    """The result of a collection: data by host, and an error text for each host that failed."""

    success: bool
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    errors: list[str] = dataclasses.field(default_factory=list)
    collection_method: str = "unknown"
    timestamp: str | None = None


class ClusterCollectorInterface(abc.ABC):
    """The interface that MLPerf Storage requires of a collector."""

    @abc.abstractmethod
    def collect(self, hosts: list[str], timeout: int = 60) -> CollectionResult:
        """Collect from hosts, `data` keyed by the requested names."""

    @abc.abstractmethod
    def collect_local(self) -> CollectionResult:
        """Collect from this machine."""

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Whether this method can be used here."""

    @abc.abstractmethod
    def get_collection_method(self) -> str:
        """The name of this method."""


class LocalCollectorInterface(abc.ABC):
    """The interface that MLPerf Storage requires of a collector of this machine."""

    @abc.abstractmethod
    def get_memory_info(self) -> dict[str, Any]:
        """Memory by name."""

    @abc.abstractmethod
    def get_cpu_info(self) -> dict[str, Any]:
        """CPUs by name."""

    @abc.abstractmethod
    def get_disk_info(self) -> list[dict[str, Any]]:
        """A dict for each disk."""

    @abc.abstractmethod
    def get_network_info(self) -> list[dict[str, Any]]:
        """A dict for each interface."""

    @abc.abstractmethod
    def get_system_info(self) -> dict[str, Any]:
        """Kernel, distribution and load."""


class TimeSeriesCollectorInterface(abc.ABC):
    """The interface that MLPerf Storage requires of a time-series collector."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start in the background."""

    @abc.abstractmethod
    def stop(self) -> Any:
        """Stop, and return the samples."""


def host_names(hosts: Sequence[str]) -> list[str]:
    """Return the names without slots, each once, in order; of an entry that cannot be parsed, what precedes a colon."""
    names: list[str] = []
    for entry in hosts:
        text = str(entry).strip()
        try:
            names += [host.name for host in parse_hosts([text])] if text else []
        except RollbookError:
            names.append(text.partition(":")[0].strip())
    return list(dict.fromkeys(name for name in names if name))


class SSHClusterCollector(ClusterCollectorInterface):
    """Over ssh, one login per host, this machine without one; `max_workers` hosts at a time.

    Other keyword arguments are fields of `rollbook.transports.Options`.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        logger: Any,
        ssh_username: str | None = None,
        timeout_seconds: float = 60,
        max_workers: int = 10,
        **options: Any,
    ) -> None:
        self.hosts, self.logger, self.ssh_username = hosts, logger, ssh_username
        self.timeout, self.max_workers = timeout_seconds, max_workers
        self._options = options

    def collect(self, hosts: Sequence[str] | None = None, timeout: float | None = None) -> CollectionResult:
        """Collect from these hosts, or from those of the constructor; raises `ValueError` without any."""
        names, seconds = host_names(self.hosts if hosts is None else hosts), timeout or self.timeout
        if not names:
            raise ValueError("no hosts to collect from")
        log(self.logger, "debug", f"Collecting from {len(names)} hosts over SSH")
        fanout = self.max_workers
        results = _read_hosts(names, self.ssh_username, via="auto", timeout=seconds, fanout=fanout, **self._options)
        data = {name: raw_host(result) for name, result in results.items()}
        errors = []
        for name, result in results.items():
            if result.gave_data:
                log(self.logger, "debug", f"Collected from {name}")
            else:
                errors.append(f"{name}: {data[name]['error']}")
                late = f"SSH to {name} timed out after {seconds:g}s"
                failed = f"SSH collection from {name} failed: {result.reason or result.status}"
                log(self.logger, "warning", late if result.status == "timed-out" else failed)
        gave = [result for result in results.values() if result.gave_data]
        only_local = bool(gave) and not errors and all(result.method == "local" for result in gave)
        return CollectionResult(bool(gave), data, errors, "local" if only_local else "ssh", iso_now())

    def collect_local(self) -> CollectionResult:
        """Collect from this machine, without any network."""
        info = collect_local_system_info()
        errors = [f"{info['hostname']}: {info['error']}"] if "error" in info else []
        return CollectionResult(not errors, {info["hostname"]: info}, errors, "local", iso_now())

    def is_available(self) -> bool:
        """Whether there is an ssh client."""
        return shutil.which("ssh") is not None

    def get_collection_method(self) -> str:
        """The name of this method."""
        return "ssh"


class MPIClusterCollector:
    """Through `mpirun` or `mpiexec`, which start the agent: no mpi4py, no staged script, no shared directory.

    Both argument orders of the tool work: a truth value in the place of `results_dir` is `allow_run_as_root`, followed
    by the timeout. `results_dir`, `shared_staging_dir` and `shared_tmp_dir` are kept and not needed.
    """

    def __init__(  # noqa: PLR0917 - the tool's signature
        self,
        hosts: Sequence[str],
        mpi_bin: str,
        logger: Any,
        results_dir: Any = None,
        allow_run_as_root: Any = False,
        timeout_seconds: float = 60,
        shared_staging_dir: str | None = None,
        shared_tmp_dir: str | None = None,
        ssh_username: str | None = None,
        **options: Any,
    ) -> None:
        if isinstance(results_dir, bool):
            if not isinstance(allow_run_as_root, bool):
                timeout_seconds = allow_run_as_root
            results_dir, allow_run_as_root = None, results_dir
        self.hosts, self.mpi_bin, self.logger, self.results_dir = hosts, mpi_bin, logger, results_dir
        self.allow_run_as_root, self.timeout = bool(allow_run_as_root), timeout_seconds
        self.shared_staging_dir, self.shared_tmp_dir = shared_staging_dir, shared_tmp_dir
        self.ssh_username, self._options = ssh_username, options

    def collect(self) -> dict[str, Any]:
        """Return facts by the hostname of each host, or by its requested name if the hostname is taken.

        A host that failed is there by its requested name, with its error. Raises `RuntimeError` if all failed.
        """
        names = host_names(self.hosts)
        if not names:
            raise RuntimeError("MPI collection failed: no hosts to collect from")
        own = {"mpi_bin": self.mpi_bin, "allow_run_as_root": self.allow_run_as_root, **self._options}
        try:
            results = _read_hosts(names, self.ssh_username, via="mpi", timeout=self.timeout, fanout=len(names), **own)
        except RollbookError as error:
            raise RuntimeError(f"MPI collection failed: {error}") from error
        failed = {name: result for name, result in results.items() if not result.gave_data}
        if len(failed) == len(results):
            if all(result.status == "timed-out" for result in failed.values()):
                raise RuntimeError(f"MPI collection timed out after {self.timeout:g} seconds")
            reasons = "; ".join(f"{name}: {result.reason}" for name, result in list(failed.items())[:5])
            raise RuntimeError(f"MPI collection failed: {reasons}")
        found: dict[str, Any] = {}
        for rank, (name, result) in enumerate(results.items()):
            info = raw_host(result)
            if result.gave_data:
                # Hosts made from one image may all have the same name.
                key = name if info["hostname"] in found else info["hostname"]
                found[key] = {**info, "mpi_rank": rank}
            else:
                log(self.logger, "warning", f"MPI collection from {name} failed: {result.reason or result.status}")
        return found | {name: raw_host(result) for name, result in failed.items()}

    def collect_local_only(self) -> dict[str, Any]:
        """Return the facts of this machine by its own name."""
        info = collect_local_system_info()
        return {info["hostname"]: info}

    def is_available(self) -> bool:
        """Whether the launcher is there."""
        return shutil.which(self.mpi_bin) is not None


def _read_hosts(names: Sequence[str], user: str | None, **options: Any) -> dict[str, HostResult]:
    """Return a result for each requested name; names of one local machine share one."""
    hosts = [f"{user}@{name}" if user else name for name in names]
    results = {result.name: result for result in snapshot(hosts, **options).hosts}
    local = next((result for result in results.values() if is_local(result.name)), None)
    missing = HostResult(name="", status="failed", reason="there is no result for this host")
    found = {name: results.get(name) or (local if is_local(name) else None) or missing for name in names}
    return {name: msgspec.structs.replace(result, name=name) for name, result in found.items()}


def collect_local_system_info() -> dict[str, Any]:
    """Return the facts of this machine; never raises."""
    try:
        (result,) = snapshot("localhost", via="local").hosts
        return raw_host(result)
    except RollbookError as error:
        return failed_host(socket.gethostname(), str(error))


def collect_cluster_info(  # noqa: PLR0917 - the tool's signature
    hosts: Sequence[str],
    mpi_bin: str,
    logger: Any,
    results_dir: Any = None,
    allow_run_as_root: Any = False,
    timeout_seconds: Any = 60,
    fallback_to_local: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Return the data of the MPI collector, with `_metadata`; if that fails, those of this machine, with the error.

    Both argument orders of the tool work, as for `MPIClusterCollector`.
    """
    if isinstance(results_dir, bool) and isinstance(timeout_seconds, bool):
        fallback_to_local = timeout_seconds
    about: dict[str, Any] = {
        "collection_method": "mpi",
        "requested_hosts": list(hosts),
        "collection_timestamp": iso_now(),
    }
    collector = MPIClusterCollector(hosts, mpi_bin, logger, results_dir, allow_run_as_root, timeout_seconds, **options)
    try:
        found = collector.collect()
    except RuntimeError as error:
        log(logger, "warning", str(error))
        if not fallback_to_local:
            raise
        log(logger, "info", "Falling back to local-only collection")
        found = collector.collect_local_only()
        about |= {"collection_method": "local_fallback", "mpi_error": str(error)}
    collected = [name for name, info in found.items() if "error" not in info]
    return {**found, "_metadata": {**about, "hosts_collected": collected}}
