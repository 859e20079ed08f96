"""What the page draws: each metric with its unit, where it comes from, what counts as odd, and how it is called."""

from __future__ import annotations

import dataclasses

from rollbook.metrics.outliers import Judge

__all__ = ["METRICS", "Metric"]

MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Metric:
    """One chart, from a column of the rates; `devices` is the view with the same column for each device.

    `trouble` marks what hurts where it is high: worth a word even without peers to compare with. `scarce` marks
    what hurts where it is low: then the least sample of a cell is drawn, not the greatest. `ceiling` is the most
    there can be, where that is worth seeing.
    """

    column: str
    title: str
    unit: str
    about: str
    judge: Judge
    devices: str = ""
    trouble: bool = False
    scarce: bool = False
    ceiling: float | None = None


SHARE = Judge("both", 5.0)
HIGH_SHARE = Judge("high", 2.0)
FLOW = Judge("both", 2.0 * MIB)
LATENCY = Judge("high", 0.5)
LEVEL = Judge("both", 512.0 * MIB)

METRICS = (
    Metric("cpu_busy", "CPU busy", "%", "Time not idle, as a share of all CPUs", SHARE, ceiling=100.0),
    Metric("cpu_iowait", "I/O wait", "%", "Idle time with I/O outstanding", HIGH_SHARE, trouble=True),
    Metric("cpu_steal", "Steal", "%", "Time the hypervisor gave to others", HIGH_SHARE, trouble=True),
    Metric("load_1min", "Load", "tasks", "Running and blocked tasks, 1 min average", Judge("high", 4.0)),
    Metric("disk_read", "Disk read", "B/s", "Read from whole disks", FLOW, devices="disks"),
    Metric("disk_write", "Disk write", "B/s", "Written to whole disks", FLOW, devices="disks"),
    Metric("disk_read_latency", "Disk read latency", "ms", "Mean time of a read", LATENCY, "disks", trouble=True),
    Metric("disk_write_latency", "Disk write latency", "ms", "Mean time of a write", LATENCY, "disks", trouble=True),
    Metric("disk_util", "Disk utilisation", "%", "Time with requests under way", SHARE, "disks", ceiling=100.0),
    Metric("net_rx", "Network in", "B/s", "Received, physical interfaces", FLOW, devices="interfaces"),
    Metric("net_tx", "Network out", "B/s", "Sent, physical interfaces", FLOW, devices="interfaces"),
    Metric("net_errors", "Network errors", "1/s", "Errors and drops", Judge("high", 1.0), "interfaces", trouble=True),
    Metric("nfs_read", "NFS read", "B/s", "Read from NFS servers", FLOW, devices="nfs_mounts"),
    Metric("nfs_write", "NFS write", "B/s", "Written to NFS servers", FLOW, devices="nfs_mounts"),
    Metric("nfs_read_latency", "NFS read latency", "ms", "Mean time of a READ", LATENCY, trouble=True),
    Metric("nfs_write_latency", "NFS write latency", "ms", "Mean time of a WRITE", LATENCY, trouble=True),
    Metric("lustre_read", "Lustre read", "B/s", "Read from Lustre", FLOW),
    Metric("lustre_write", "Lustre write", "B/s", "Written to Lustre", FLOW),
    Metric("mem_available", "Memory available", "B", "What new programs could have", LEVEL, scarce=True),
    Metric("page_cache", "Page cache", "B", "File pages in memory", LEVEL),
    Metric("dirty", "Dirty pages", "B", "Written but not yet on disk", Judge("high", 256.0 * MIB)),
    Metric("swap_in", "Swap in", "pages/s", "Pages read back from swap", Judge("high", 100.0), trouble=True),
    Metric("swap_out", "Swap out", "pages/s", "Pages written to swap", Judge("high", 100.0), trouble=True),
    Metric("psi_cpu", "CPU pressure", "%", "Time with tasks waiting for a CPU", HIGH_SHARE),
    Metric("psi_memory", "Memory pressure", "%", "Time with tasks waiting for memory", HIGH_SHARE, trouble=True),
    Metric("psi_io", "I/O pressure", "%", "Time with tasks waiting for I/O", HIGH_SHARE, trouble=True),
    Metric("gpu_util", "GPU busy", "%", "Time with kernels running", SHARE, devices="gpus", ceiling=100.0),
    Metric("gpu_memory", "GPU memory", "B", "Memory in use", LEVEL, devices="gpus"),
    Metric("rdma_rx", "RDMA in", "B/s", "Received by InfiniBand or RoCE ports", FLOW, devices="ports"),
    Metric("rdma_tx", "RDMA out", "B/s", "Sent by InfiniBand or RoCE ports", FLOW, devices="ports"),
)
