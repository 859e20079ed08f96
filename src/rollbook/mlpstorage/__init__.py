"""MLPerf Storage's public names over Rollbook's core: code written for the tool changes only its import line.

Names are loaded when they are used. The module is lenient where the tool is; what could not be read or checked is
named beside the empty value, and is never counted as good.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "mlpstorage.cluster": "ClusterInformation ClusterSnapshots",
    "mlpstorage.collector": "ClusterCollectorInterface CollectionResult LOCALHOST_IDENTIFIERS LocalCollectorInterface "
    "MPIClusterCollector SSHClusterCollector TimeSeriesCollectorInterface collect_cluster_info "
    "collect_local_system_info",
    "mlpstorage.config": "ACCELERATORS BENCHMARK_TYPES EXEC_TYPE EXIT_CODE INDEX_TYPES KVCACHE_GENERATION_MODES "
    "KVCACHE_MODELS KVCACHE_PERFORMANCE_PROFILES LLM_MODELS LLM_SUBSET_PROCS MAX_NUM_FILES_TRAIN "
    "MAX_READ_THREADS_TRAINING MINIMUM_HOST_MEMORY_GB MODELS MOST_MEMORY_MULTIPLIER PARAM_VALIDATION RuleState "
    "STEPS_PER_EPOCH",
    "mlpstorage.environment": "INSTALL_INSTRUCTIONS OSInfo ValidationIssue collect_validation_issues detect_os "
    "get_install_instruction validate_ssh_connectivity",
    "mlpstorage.hosts": "CgroupInfo HostCPUInfo HostDiskInfo HostInfo HostMemoryInfo HostNetworkInfo HostSystemInfo "
    "MountInfo summarize_cpuinfo",
    "mlpstorage.issues": "Issue",
    "mlpstorage.machine": "collect_chassis_model collect_drives collect_environment collect_networking collect_sysctl",
    "mlpstorage.parsers": "parse_proc_cgroups parse_proc_diskstats parse_proc_loadavg parse_proc_mounts "
    "parse_proc_net_dev",
    "mlpstorage.results": "BenchmarkInstanceExtractor BenchmarkResult BenchmarkRun BenchmarkRunData DLIOResultParser "
    "ProcessedRun ResultFilesExtractor RunID calculate_training_data_size generate_output_location get_runs_files",
    "mlpstorage.rules": "BenchmarkRulesChecker BenchmarkVerifier CheckpointSubmissionRulesChecker "
    "CheckpointingRunRulesChecker ClusterValidationRulesChecker KVCacheRunRulesChecker MultiRunRulesChecker "
    "RulesChecker RunRulesChecker TrainingRunRulesChecker TrainingSubmissionRulesChecker VectorDBRunRulesChecker",
    "mlpstorage.scripts": "MPI_COLLECTOR_SCRIPT SSH_COLLECTOR_SCRIPT TIMESERIES_SSH_SCRIPT",
    "mlpstorage.shared_fs": "FileSystemError run_shared_fs_probe",
    "mlpstorage.standalone": "collect_timeseries_sample parse_os_release parse_proc_cpuinfo parse_proc_meminfo "
    "parse_proc_uptime parse_proc_version parse_proc_vmstat",
    "mlpstorage.timeseries": "MultiHostTimeSeriesCollector TimeSeriesCollector",
    "mlperf.export": "export_mlpstorage",
    "records.timeseries": "TimeSeriesData TimeSeriesSample",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"rollbook.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_MODULES)
