"""A benchmark base class like that of MLPerf Storage, which uses only the public names.

It collects the cluster before and after a run, samples hosts meanwhile, and writes metadata, series and cluster.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rollbook.mlpstorage import (
    BENCHMARK_TYPES,
    EXEC_TYPE,
    ClusterInformation,
    ClusterSnapshots,
    MultiHostTimeSeriesCollector,
    SSHClusterCollector,
    TimeSeriesCollector,
    TimeSeriesData,
    TimeSeriesSample,
    collect_cluster_info,
)
from tests.support.waits import until


class Benchmark:
    """What the tool's base class does around a run; `options` are keyword arguments of the collectors, by name."""

    BENCHMARK_TYPE = BENCHMARK_TYPES.kv_cache

    def __init__(self, args: Any, logger: Any, output: Path, options: dict[str, Any]) -> None:
        self.args, self.logger, self.run_result_output, self.options = args, logger, output, options
        self.run_datetime = "20260801_120000"
        self.cluster_information: Any = None
        self.cluster_snapshots: Any = None
        self.timeseries: TimeSeriesData | None = None
        self.runtime = 0.0
        output.mkdir(parents=True)

    def _collect(self) -> ClusterInformation | None:
        if not getattr(self.args, "hosts", None):
            return None
        timeout = getattr(self.args, "cluster_collection_timeout", 60)
        if self.args.exec_type == EXEC_TYPE.MPI:
            data = collect_cluster_info(
                hosts=self.args.hosts,
                mpi_bin=self.args.mpi_bin,
                logger=self.logger,
                allow_run_as_root=self.args.allow_run_as_root,
                timeout_seconds=timeout,
                fallback_to_local=True,
                **self.options["mpi"],
            )
            return ClusterInformation.from_mpi_collection(data, self.logger)
        collector = SSHClusterCollector(
            hosts=self.args.hosts,
            logger=self.logger,
            ssh_username=getattr(self.args, "ssh_username", None),
            timeout_seconds=timeout,
            **self.options["ssh"],
        )
        if not collector.is_available():
            return None
        result = collector.collect(self.args.hosts, timeout)
        for error in result.errors:
            self.logger.warning(error)
        if not result.success:
            return None
        about = {"collection_method": "ssh", "collection_timestamp": result.timestamp}
        return ClusterInformation.from_mpi_collection({**result.data, "_metadata": about}, self.logger)

    def _start_series(self) -> Any:
        interval, limit = self.args.timeseries_interval, getattr(self.args, "max_timeseries_samples", 3600)
        if not getattr(self.args, "hosts", None):
            return TimeSeriesCollector(interval_seconds=interval, max_samples=limit, logger=self.logger)
        return MultiHostTimeSeriesCollector(
            hosts=self.args.hosts,
            interval_seconds=interval,
            max_samples=limit,
            ssh_username=None,
            ssh_timeout=180,
            logger=self.logger,
            **self.options["ssh"],
        )

    def _stop_series(self, collector: Any) -> None:
        found = collector.stop()
        if isinstance(collector, MultiHostTimeSeriesCollector):
            samples = {host: [TimeSeriesSample.from_dict(one) for one in taken] for host, taken in found.items()}
            requested, collected = collector.hosts, collector.get_hosts_with_data()
        else:
            samples = {found[0]["hostname"]: [TimeSeriesSample.from_dict(one) for one in found]}
            requested = collected = list(samples)
        self.timeseries = TimeSeriesData(
            collection_interval_seconds=collector.interval_seconds,
            start_time=collector.start_time,
            end_time=collector.end_time,
            num_samples=sum(map(len, samples.values())),
            samples_by_host=samples,
            collection_method=found.data.collection_method,
            hosts_requested=requested,
            hosts_collected=collected,
        )

    def run(self, enough: Callable[[Any], bool]) -> None:
        """Run until the collector has enough, with everything around it."""
        start = self._collect()
        collector = self._start_series()
        collector.start()
        began = time.monotonic()
        try:
            until(lambda: enough(collector))
        finally:
            self.runtime = time.monotonic() - began
            self._stop_series(collector)
        if start is not None:
            end = self._collect()
            self.cluster_snapshots = ClusterSnapshots(start=start, end=end, collection_method=start.collection_method)
            self.cluster_information = start
        self._write()

    def _write(self) -> None:
        kind, stamp = self.BENCHMARK_TYPE.value, self.run_datetime
        assert self.timeseries is not None
        series = f"{kind}_{stamp}_timeseries.json"
        metadata = {
            "benchmark_type": self.BENCHMARK_TYPE.name,
            "model": "m",
            "command": "run",
            "run_datetime": stamp,
            "num_processes": 1,
            "accelerator": None,
            "result_dir": str(self.run_result_output),
            "parameters": {"num_users": 1},
            "override_parameters": {},
            "system_info": self.cluster_information.info if self.cluster_information else None,
            "cluster_snapshots": self.cluster_snapshots.as_dict() if self.cluster_snapshots else None,
            "timeseries_data": {"file": series, "num_samples": self.timeseries.num_samples},
            "runtime": self.runtime,
            "verification": None,
        }
        documents: dict[str, Any] = {
            f"{kind}_{stamp}_metadata.json": metadata,
            series: self.timeseries.to_dict(),
        }
        if self.cluster_information:
            documents[f"{kind}_cluster_info.json"] = self.cluster_information.to_detailed_dict()
        for name, document in documents.items():
            (self.run_result_output / name).write_text(json.dumps(document, indent=2))


def files_of(output: Path, run: Benchmark) -> dict[str, Any]:
    """The documents that a run of the base class wrote, by the end of their names."""
    assert run.timeseries is not None
    return {path.name.removeprefix("kv_cache_"): json.loads(path.read_bytes()) for path in output.iterdir()}
