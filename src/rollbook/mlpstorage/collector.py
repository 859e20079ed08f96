"""MLPerf Storage's collectors over Rollbook's agent and transports: same classes, same signatures, every host named.

Unlike theirs, hosts that gave nothing are never counted as hosts with no memory, and a way that failed is never
replaced by another without saying so.
"""

from __future__ import annotations

import abc
import dataclasses
import shutil
from collections.abc import Sequence
from typing import Any

from rollbook.api.snapshot import snapshot
from rollbook.mlpstorage.shapes import raw_record
from rollbook.times import iso_now

__all__ = [
    "ClusterCollectorInterface",
    "CollectionResult",
    "MPIClusterCollector",
    "SSHClusterCollector",
    "collect_cluster_info",
    "collect_local_system_info",
]


@dataclasses.dataclass
class CollectionResult:
    """What a collection gave: data by host, and an error for each host that gave none."""

    success: bool
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    errors: list[str] = dataclasses.field(default_factory=list)
    collection_method: str = "unknown"
    timestamp: str | None = None


class ClusterCollectorInterface(abc.ABC):
    """What MLPerf Storage asks of a collector."""

    @abc.abstractmethod
    def collect(self, hosts: list[str], timeout: int = 60) -> CollectionResult:
        """Collect from hosts, `data` keyed by the names asked for."""

    @abc.abstractmethod
    def collect_local(self) -> CollectionResult:
        """Collect from this machine."""

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Whether this way can be used here."""

    @abc.abstractmethod
    def get_collection_method(self) -> str:
        """The word for this way."""


class _Collector(ClusterCollectorInterface):
    """The common part: hosts, time and options, given at the start or with the call."""

    method = "auto"

    def __init__(self, hosts: Sequence[str], timeout_seconds: float, max_workers: int, **options: Any) -> None:
        self.hosts, self.timeout, self._fanout, self._options = list(hosts), timeout_seconds, max_workers, options

    def collect(self, hosts: Sequence[str] | None = None, timeout: float | None = None) -> CollectionResult:
        """Collect from these hosts, or from those of the constructor."""
        return self._collected(hosts or self.hosts, self.method, timeout or self.timeout, **self._options)

    def collect_local(self) -> CollectionResult:
        """Collect from this machine, without any network."""
        options = {"python": self._options["python"]} if "python" in self._options else {}
        return self._collected(["localhost"], "local", self.timeout, **options)

    def get_collection_method(self) -> str:
        """The word used in records."""
        return self.method

    def _collected(self, hosts: Sequence[str], via: str, timeout: float, **options: Any) -> CollectionResult:
        records = snapshot(hosts, via=via, timeout=timeout, fanout=self._fanout, **options).hosts
        gave = [record for record in records if record.gave_data]
        return CollectionResult(
            success=bool(gave),
            data={record.name: raw_record(record) for record in records},
            errors=[f"{record.name}: {record.reason}" for record in records if not record.gave_data],
            collection_method="+".join(sorted({record.method for record in gave})) or via,
            timestamp=iso_now(),
        )


class SSHClusterCollector(_Collector):
    """Over ssh, one login per host, this machine without one; `max_workers` hosts at a time."""

    method = "ssh"

    def __init__(
        self,
        hosts: Sequence[str],
        logger: Any,
        ssh_username: str | None = None,
        timeout_seconds: float = 60,
        max_workers: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(hosts, timeout_seconds, max_workers, ssh_user=ssh_username, **options)
        self.logger, self.ssh_username = logger, ssh_username

    def collect(self, hosts: Sequence[str] | None = None, timeout: float | None = None) -> CollectionResult:
        """Collect from the hosts; this machine is asked without a login."""
        return self._collected(hosts or self.hosts, "auto", timeout or self.timeout, **self._options)

    def is_available(self) -> bool:
        """Whether there is an ssh client."""
        return shutil.which("ssh") is not None


class MPIClusterCollector(_Collector):
    """Through `mpirun` or `mpiexec`, which start the agent: no mpi4py, no staged script, no shared directory.

    `results_dir`, `shared_staging_dir` and `shared_tmp_dir` are taken and not needed.
    """

    method = "mpi"

    def __init__(  # noqa: PLR0917 - their signature
        self,
        hosts: Sequence[str],
        mpi_bin: str,
        logger: Any,
        results_dir: str | None = None,
        allow_run_as_root: bool = False,
        timeout_seconds: float = 60,
        shared_staging_dir: str | None = None,
        shared_tmp_dir: str | None = None,
        ssh_username: str | None = None,
        **options: Any,
    ) -> None:
        if not hosts:
            raise ValueError("no host is named")
        own: dict[str, Any] = {"mpi_bin": mpi_bin, "allow_run_as_root": allow_run_as_root}
        if options.get("fallback") == "ssh":  # the launcher itself logs in as its own configuration says
            own["ssh_user"] = ssh_username
        super().__init__(hosts, timeout_seconds, len(hosts), **own, **options)
        self.mpi_bin, self.logger, self.results_dir = mpi_bin, logger, results_dir
        del shared_staging_dir, shared_tmp_dir

    def collect(self, hosts: Sequence[str] | None = None, timeout: float | None = None) -> dict[str, Any]:  # type: ignore[override] # as theirs does
        """System information by the name each host gives itself, by the one asked for where that is taken.

        Raises `RuntimeError` where no host gave any.
        """
        result = super().collect(hosts, timeout)
        if not result.success:
            raise RuntimeError(f"no host gave data through {self.mpi_bin}: {'; '.join(result.errors[:5])}")
        for error in result.errors:
            self.logger.warning(error)
        found: dict[str, Any] = {}
        for name, info in result.data.items():
            if "error" not in info:
                # Hosts made from one image may all call themselves the same.
                found[name if info["hostname"] in found else info["hostname"]] = info
        return found

    def is_available(self) -> bool:
        """Whether the launcher is there."""
        return shutil.which(self.mpi_bin) is not None


def collect_local_system_info() -> dict[str, Any]:
    """System information of this machine."""
    (record,) = snapshot("localhost", via="local").hosts
    return raw_record(record)


def collect_cluster_info(  # noqa: PLR0917 - their signature
    hosts: Sequence[str],
    mpi_bin: str,
    logger: Any,
    results_dir: str | None = None,
    allow_run_as_root: bool = False,
    timeout_seconds: float = 60,
    fallback_to_local: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """What the MPI collector gives, with `_metadata` on how it came; on failure this machine's own, and the error."""
    about: dict[str, Any] = {
        "requested_hosts": list(hosts),
        "collection_timestamp": iso_now(),
    }
    collector = MPIClusterCollector(hosts, mpi_bin, logger, results_dir, allow_run_as_root, timeout_seconds, **options)
    try:
        found = collector.collect()
        about["collection_method"] = "mpi"
    except RuntimeError as error:
        if not fallback_to_local:
            raise
        logger.warning("%s; only this machine is described", error)
        local = collect_local_system_info()
        found = {local["hostname"]: local}
        about |= {"collection_method": "local_fallback", "mpi_error": str(error)}
    return {**found, "_metadata": {**about, "hosts_collected": len(found)}}
