"""MLPerf Storage's own classes, files and descriptions, thin over Rollbook's core.

A benchmark written for its collectors and rules runs on Rollbook by importing them from here. Names are loaded when
they are used.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "mlpstorage.cluster": "ClusterInformation ClusterSnapshots host_info",
    "mlpstorage.collector": "ClusterCollectorInterface CollectionResult MPIClusterCollector SSHClusterCollector "
    "collect_cluster_info collect_local_system_info",
    "mlpstorage.parsers": "parse_os_release parse_proc_cgroups parse_proc_cpuinfo parse_proc_diskstats "
    "parse_proc_loadavg "
    "parse_proc_meminfo parse_proc_mounts parse_proc_net_dev parse_proc_uptime parse_proc_version parse_proc_vmstat",
    "mlpstorage.results": "BenchmarkResult BenchmarkRun",
    "mlpstorage.rules": "MINIMUM_HOST_MEMORY_GB PARAM_VALIDATION BenchmarkRulesChecker BenchmarkVerifier "
    "ClusterValidationRulesChecker Issue RulesChecker",
    "mlperf.export": "export_mlpstorage",
    "records.timeseries": "TimeSeriesData TimeSeriesSample",
    "mlpstorage.timeseries": "MultiHostTimeSeriesCollector TimeSeriesCollector",
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"rollbook.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
