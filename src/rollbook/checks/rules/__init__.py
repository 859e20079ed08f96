"""The rules that need code, one small module each, in the order of evaluation."""

from __future__ import annotations

import functools
import importlib

from rollbook.checks.rule import Rule, rule_from_module

__all__ = ["MODULES", "module_rules"]

MODULES = (
    "host_missing",
    "host_partial",
    "host_lost",
    "host_rebooted",
    "host_suspended",
    "hardware_mismatch",
    "baseline_drift",
    "expectation_missed",
    "series_incomplete",
    "series_loss",
    "host_outlier",
    "clock_skew",
    "clock_stepped",
    "clock_unsynchronised",
    "background_load",
    "gpu_in_use",
    "observer_cost",
    "observer_stuck",
    "cpus_mixed",
    "clocksource_slow",
    "pcie_link_degraded",
    "dimms_mixed",
    "nvme_unhealthy",
    "raid_degraded",
    "disk_not_counted",
    "bond_member_down",
    "nfs_connections_short",
    "lustre_target_down",
    "memlock_low",
    "mlperf_command_failed",
    "mlperf_model_unknown",
    "mlperf_accelerator_unknown",
    "mlperf_override_forbidden",
    "mlperf_workload_changed",
    "mlperf_utilisation_low",
    "mlperf_collection",
    "mlperf_clients_inconsistent",
    "mlperf_minimum_memory",
    "mlperf_dataset_size",
    "mlperf_file_system_shared",
    "mlperf_accelerators",
    "mlperf_nodes_unlike",
    "mlperf_description",
    "mlperf_checkpoint_processes",
    "mlperf_checkpoint_count",
    "mlperf_fsync_off",
    "mlperf_checkpoint_size",
    "mlperf_accelerator_memory",
    "mlperf_processes",
    "mlperf_gap",
    "mlperf_vector_database",
    "mlperf_kv_cache",
    "mlperf_runs_not_closed",
    "mlperf_run_count",
    "mlperf_data_generation",
    "mlperf_run_gaps",
    "mlperf_runs_inconsistent",
    "mlperf_checkpoint_totals",
)


@functools.cache
def module_rules() -> tuple[Rule, ...]:
    """The rules that these modules declare."""
    return tuple(rule_from_module(importlib.import_module(f"rollbook.checks.rules.{name}")) for name in MODULES)
