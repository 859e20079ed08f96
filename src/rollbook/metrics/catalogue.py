"""All derived metrics, each declared once. Installed packages add theirs through entry points (`rollbook.metrics`)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from rollbook.errors import RollbookError
from rollbook.metrics.metric import Metric, Part, parts_of

__all__ = ["GROUP", "METRICS", "load", "parts", "watched"]

GROUP = "rollbook.metrics"
"""The entry point group of metrics from other packages: a `Metric`, or several in a list."""

KIB, MIB = 1 << 10, 1 << 20
FLOW: dict[str, Any] = {"bad": "low", "negligible": 2.0 * MIB, "summary": True}
REQUESTS: dict[str, Any] = {"bad": "low", "negligible": 50.0, "summary": True}
LATENCY: dict[str, Any] = {"bad": "high", "negligible": 0.5, "over_time": True, "summary": True}
WAITING: dict[str, Any] = {"bad": "high", "negligible": 2.0, "over_time": True}
LEVEL: dict[str, Any] = {"negligible": 512.0 * MIB}
EXTRA: dict[str, Any] = {"compared": False, "chart": False}
"""Columns of `rates` that repeat what a chart shows, or that few readers need."""

CPU: dict[str, Any] = {"where": {"cpu": "cpu"}}
CPU_TIME = "(user + nice + system + idle + iowait + irq + softirq + steal)"  # user and nice time contain guest time


def _cpu(time: str) -> dict[str, str]:
    return {"stat": f"100 * {time} / {CPU_TIME}"}


def _memory(field: str) -> dict[str, str]:
    return {"meminfo": f"1024 * {field}"}


def _pressure(resource: str, total: str = "some_total_us") -> dict[str, Any]:
    """Microseconds of waiting per second, as a percentage."""
    return {"formula": {"pressure": f"{total} / 10000"}, "where": {"resource": resource}}


def _lustre(operation: str) -> dict[str, Any]:
    return {"formula": {"lustre_stats": "sum"}, "where": {"operation": operation}, "devices": "lustre_mounts"}


def _nfs(operations: tuple[str, ...], formula: str) -> dict[str, Any]:
    return {"formula": {"nfs_ops": formula}, "where": {"operation": operations}, "devices": "nfs_operations"}


DISK: dict[str, Any] = {"devices": "disks"}
LINK: dict[str, Any] = {"devices": "interfaces"}
PORT: dict[str, Any] = {"devices": "ports"}
MOUNT: dict[str, Any] = {"devices": "nfs_mounts"}
NFS_READS, NFS_WRITES = ("READ", "READ_PLUS"), ("WRITE",)  # NFS 4.2 reads with both
GPU: dict[str, Any] = {"devices": "gpus", "total": "mean"}

METRICS = (
    Metric(
        "cpu_busy",
        "CPU busy",
        "%",
        "Time not idle, as a share of all CPUs",
        {"stat": f"100 * (1 - (idle + iowait) / {CPU_TIME})"},
        **CPU,
        bad="low",
        negligible=5.0,
        ceiling=100.0,
        watch="CPU",
        summary=True,
    ),
    Metric("cpu_user", "CPU user", "%", "Time in user space, without niced tasks", _cpu("user"), **CPU, **EXTRA),
    Metric("cpu_system", "CPU system", "%", "Time in the kernel, without interrupts", _cpu("system"), **CPU, **EXTRA),
    Metric(
        "cpu_iowait",
        "I/O wait",
        "%",
        "Idle time with outstanding I/O",
        _cpu("iowait"),
        **CPU,
        **WAITING,
        watch="I/O wait",
    ),
    Metric("cpu_steal", "Steal", "%", "Time that the hypervisor gave to other guests", _cpu("steal"), **CPU, **WAITING),
    Metric(
        "load_1min",
        "Load",
        "tasks",
        "Running and blocked tasks, average over one minute",
        {"loadavg": "load_1min"},
        bad="high",
        negligible=4.0,
        watch="load",
    ),
    Metric(
        "context_switches",
        "Context switches",
        "1/s",
        "Context switches of all CPUs",
        {"stat_totals": "ctxt"},
        compared=False,
    ),
    Metric("procs_running", "Running tasks", "tasks", "Tasks that can run", {"stat_totals": "procs_running"}, **EXTRA),
    Metric(
        "procs_blocked", "Blocked tasks", "tasks", "Tasks that wait for I/O", {"stat_totals": "procs_blocked"}, **EXTRA
    ),
    Metric(
        "disk_read",
        "Disk read",
        "B/s",
        "Bytes read from whole disks",
        {"diskstats": "512 * sectors_read"},
        **DISK,
        **FLOW,
        watch="disk read",
    ),
    Metric(
        "disk_write",
        "Disk write",
        "B/s",
        "Bytes written to whole disks",
        {"diskstats": "512 * sectors_written"},
        **DISK,
        **FLOW,
        watch="disk write",
    ),
    Metric(
        "disk_read_latency",
        "Disk read latency",
        "ms",
        "Mean time from queueing a read to its completion",
        {"diskstats": "time_reading_ms / reads_completed"},
        **DISK,
        **LATENCY,
        total="disk_reads",
    ),
    Metric(
        "disk_write_latency",
        "Disk write latency",
        "ms",
        "Mean time from queueing a write to its completion",
        {"diskstats": "time_writing_ms / writes_completed"},
        **DISK,
        **LATENCY,
        total="disk_writes",
    ),
    Metric(
        "disk_util",
        "Disk utilisation",
        "%",
        "Time with requests in progress (per host: of its busiest disk). Devices that work in parallel may not be "
        "saturated at 100 %",
        {"diskstats": "min(time_doing_ios_ms / 10, 100)"},
        **DISK,
        total="max",
        negligible=5.0,
        ceiling=100.0,
    ),
    Metric(
        "disk_reads", "Disk read IOPS", "1/s", "Reads completed", {"diskstats": "reads_completed"}, **DISK, **REQUESTS
    ),
    Metric(
        "disk_writes",
        "Disk write IOPS",
        "1/s",
        "Writes completed",
        {"diskstats": "writes_completed"},
        **DISK,
        **REQUESTS,
    ),
    Metric(
        "disk_queue",
        "Disk queue depth",
        "requests",
        "Mean number of requests in progress",
        {"diskstats": "weighted_time_doing_ios_ms / 1000"},
        **DISK,
        bad="high",
        negligible=8.0,
    ),
    Metric(
        "disk_request_size",
        "Disk request size",
        "B",
        "Mean size of a read or write",
        {"diskstats": "512 * (sectors_read + sectors_written) / (reads_completed + writes_completed)"},
        **DISK,
        total="disk_requests",
        negligible=32.0 * KIB,
    ),
    Metric(
        "disk_requests",
        "Disk IOPS",
        "1/s",
        "Reads and writes completed",
        {"diskstats": "reads_completed + writes_completed"},
        **DISK,
        **EXTRA,
    ),
    Metric(
        "net_rx",
        "Network receive",
        "B/s",
        "Bytes received by physical interfaces",
        {"net_dev": "rx_bytes"},
        **LINK,
        **FLOW,
        watch="net in",
    ),
    Metric(
        "net_tx",
        "Network send",
        "B/s",
        "Bytes sent by physical interfaces",
        {"net_dev": "tx_bytes"},
        **LINK,
        **FLOW,
        watch="net out",
    ),
    Metric(
        "net_rx_packets",
        "Packets received",
        "1/s",
        "Packets received by physical interfaces",
        {"net_dev": "rx_packets"},
        **LINK,
        **EXTRA,
    ),
    Metric(
        "net_tx_packets",
        "Packets sent",
        "1/s",
        "Packets sent by physical interfaces",
        {"net_dev": "tx_packets"},
        **LINK,
        **EXTRA,
    ),
    Metric(
        "net_errors",
        "Network errors",
        "1/s",
        "Packets with errors and packets dropped, both directions",
        {"net_dev": "rx_errors + tx_errors + rx_dropped + tx_dropped"},
        **LINK,
        bad="high",
        negligible=1.0,
        over_time=True,
    ),
    Metric(
        "rdma_rx",
        "RDMA receive",
        "B/s",
        "Bytes received by InfiniBand and RoCE ports",
        {"infiniband_counters": "rx_bytes"},
        **PORT,
        **FLOW,
        watch="RDMA in",
    ),
    Metric(
        "rdma_tx",
        "RDMA send",
        "B/s",
        "Bytes sent by InfiniBand and RoCE ports",
        {"infiniband_counters": "tx_bytes"},
        **PORT,
        **FLOW,
        watch="RDMA out",
    ),
    Metric(
        "rdma_rx_packets",
        "RDMA packets received",
        "1/s",
        "Packets received by InfiniBand and RoCE ports",
        {"infiniband_counters": "port_rcv_packets"},
        **PORT,
        **EXTRA,
    ),
    Metric(
        "rdma_tx_packets",
        "RDMA packets sent",
        "1/s",
        "Packets sent by InfiniBand and RoCE ports",
        {"infiniband_counters": "port_xmit_packets"},
        **PORT,
        **EXTRA,
    ),
    Metric(
        "nfs_read",
        "NFS read",
        "B/s",
        "Bytes read from NFS servers",
        {"nfs": "server_read_bytes"},
        **MOUNT,
        **FLOW,
        watch="NFS read",
    ),
    Metric(
        "nfs_write",
        "NFS write",
        "B/s",
        "Bytes written to NFS servers",
        {"nfs": "server_written_bytes"},
        **MOUNT,
        **FLOW,
        watch="NFS write",
    ),
    Metric(
        "nfs_read_latency",
        "NFS read latency",
        "ms",
        "Mean time of a READ or READ_PLUS, with queueing and retries",
        **_nfs(NFS_READS, "execute_ms / ops"),
        **LATENCY,
        total="nfs_reads",
    ),
    Metric(
        "nfs_write_latency",
        "NFS write latency",
        "ms",
        "Mean time of a WRITE, with queueing and retries",
        **_nfs(NFS_WRITES, "execute_ms / ops"),
        **LATENCY,
        total="nfs_writes",
    ),
    Metric("nfs_reads", "NFS read IOPS", "1/s", "READ and READ_PLUS requests", **_nfs(NFS_READS, "ops"), **REQUESTS),
    Metric("nfs_writes", "NFS write IOPS", "1/s", "WRITE requests", **_nfs(NFS_WRITES, "ops"), **REQUESTS),
    Metric(
        "lustre_read",
        "Lustre read",
        "B/s",
        "Bytes that programs read from Lustre, including the page cache",
        **_lustre("read_bytes"),
        **FLOW,
    ),
    Metric(
        "lustre_write",
        "Lustre write",
        "B/s",
        "Bytes that programs wrote to Lustre, including the page cache",
        **_lustre("write_bytes"),
        **FLOW,
    ),
    Metric(
        "mem_available",
        "Memory available",
        "B",
        "Memory available to new programs without swapping",
        _memory("MemAvailable"),
        **LEVEL,
        bad="low",
        runs_out=True,
        watch="mem avail",
    ),
    Metric("mem_free", "Memory free", "B", "Unused memory", _memory("MemFree"), **EXTRA),
    Metric("page_cache", "Page cache", "B", "File pages in memory", _memory("Cached"), **LEVEL),
    Metric(
        "dirty",
        "Dirty pages",
        "B",
        "Pages modified by programs and not yet written to disk",
        _memory("Dirty"),
        bad="high",
        negligible=256.0 * MIB,
    ),
    Metric("writeback", "Writeback", "B", "Pages being written to disk", _memory("Writeback"), **EXTRA),
    Metric("swap_free", "Swap free", "B", "Unused swap space", _memory("SwapFree"), **EXTRA),
    Metric("major_faults", "Major faults", "1/s", "Page faults that read from disk", {"vmstat": "pgmajfault"}, **EXTRA),
    Metric(
        "swap_in",
        "Swap in",
        "pages/s",
        "Pages read back from swap",
        {"vmstat": "pswpin"},
        bad="high",
        negligible=100.0,
        over_time=True,
    ),
    Metric(
        "swap_out",
        "Swap out",
        "pages/s",
        "Pages written to swap",
        {"vmstat": "pswpout"},
        bad="high",
        negligible=100.0,
        over_time=True,
    ),
    Metric(
        "psi_cpu",
        "CPU pressure",
        "%",
        "Time in which at least one task waited for a CPU",
        **_pressure("cpu"),
        bad="high",
        negligible=2.0,
        watch="PSI CPU",
    ),
    Metric(
        "psi_memory",
        "Memory pressure",
        "%",
        "Time in which at least one task waited for memory",
        **_pressure("memory"),
        **WAITING,
        watch="PSI mem",
    ),
    Metric(
        "psi_memory_full",
        "Memory pressure, all tasks",
        "%",
        "Time in which all tasks waited for memory",
        **_pressure("memory", "full_total_us"),
        **EXTRA,
    ),
    Metric(
        "psi_io",
        "I/O pressure",
        "%",
        "Time in which at least one task waited for I/O",
        **_pressure("io"),
        **WAITING,
        watch="PSI I/O",
    ),
    Metric(
        "psi_io_full",
        "I/O pressure, all tasks",
        "%",
        "Time in which all tasks waited for I/O",
        **_pressure("io", "full_total_us"),
        **EXTRA,
    ),
    Metric(
        "gpu_util",
        "GPU busy",
        "%",
        "Time with a kernel running, mean of all GPUs",
        {"gpu": "busy_percent", "amdgpu": "busy_percent"},
        **GPU,
        bad="low",
        negligible=5.0,
        ceiling=100.0,
        watch="GPU",
        summary=True,
    ),
    Metric(
        "gpu_memory",
        "GPU memory",
        "B",
        "GPU memory in use",
        {"gpu": f"{MIB} * memory_used_mib", "amdgpu": "vram_used"},
        devices="gpus",
        **LEVEL,
        watch="GPU mem",
    ),
    Metric(
        "gpu_power",
        "GPU power",
        "W",
        "Power draw of all GPUs",
        {"gpu": "power_watts"},
        devices="gpus",
        negligible=50.0,
        summary=True,
    ),
    Metric(
        "gpu_temperature",
        "GPU temperature",
        "°C",
        "Temperature of the hottest GPU",
        {"gpu": "celsius"},
        devices="gpus",
        total="max",
        bad="high",
        negligible=5.0,
    ),
    Metric(
        "gpu_clock",
        "GPU clock",
        "MHz",
        "Clock of the streaming multiprocessors, mean of all GPUs",
        {"gpu": "sm_mhz"},
        **GPU,
        bad="low",
        negligible=100.0,
    ),
    Metric(
        "gpu_throttled",
        "GPU throttled",
        "%",
        "Share of GPUs with reduced clocks, mostly because of a power or temperature limit",
        {"gpu": "throttled_percent"},
        **GPU,
        bad="high",
        negligible=10.0,
        ceiling=100.0,
        summary=True,
    ),
    Metric(
        "gpu_memory_clock",
        "GPU memory clock",
        "MHz",
        "Memory clock, mean of all GPUs",
        {"gpu": "memory_mhz"},
        **GPU,
        **EXTRA,
    ),
)


@functools.cache
def load() -> dict[str, Metric]:
    """All metrics by name, also those of other packages; raises `RollbookError` for one that cannot be used."""
    from importlib import metadata  # noqa: PLC0415 - scanning all packages is slow

    found = {metric.name: metric for metric in METRICS}
    for entry in metadata.entry_points(group=GROUP):
        try:
            found |= _added(entry.load(), found)
        except Exception as error:  # whatever a plug-in does when imported
            raise RollbookError(f"the metric {entry.name} of {entry.value} cannot be used: {error}") from error
    return found


def _added(loaded: Any, found: Mapping[str, Metric]) -> dict[str, Metric]:
    """The metrics of an entry point; raises an error if one is invalid or clashes with those found so far."""
    metrics = [loaded] if isinstance(loaded, Metric) else list(loaded)
    for metric in metrics:
        if not isinstance(metric, Metric):
            raise TypeError(f"it is a {type(metric).__name__}, not a Metric")
        if metric.name in found:
            raise ValueError(f"there is already a metric called {metric.name}")
    added = {metric.name: metric for metric in metrics}
    parts_of({**found, **added})
    return added


@functools.cache
def parts() -> dict[str, Part]:
    """All metrics, grouped by what they are computed from."""
    return parts_of(load())


@functools.cache
def watched() -> dict[str, Metric]:
    """The metrics of the live view, by name."""
    return {name: metric for name, metric in load().items() if metric.watch}
