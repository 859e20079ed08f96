"""The rules that need code, one small module each. The order is the order in which they are asked."""

from __future__ import annotations

import functools
import importlib

from rollbook.checks.rule import Rule, of_module

__all__ = ["MODULES", "written"]

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
    "bond_member_down",
    "nfs_connections_short",
    "lustre_target_down",
    "memlock_low",
    "mlperf_collection",
    "mlperf_minimum_memory",
    "mlperf_dataset_size",
    "mlperf_accelerators",
    "mlperf_nodes_unlike",
    "mlperf_description",
    "mlperf_checkpoint_size",
    "mlperf_accelerator_memory",
    "mlperf_processes",
    "mlperf_gap",
)


@functools.cache
def written() -> tuple[Rule, ...]:
    """The rules of the modules."""
    return tuple(of_module(importlib.import_module(f"rollbook.checks.rules.{name}")) for name in MODULES)
