"""What the page draws: each metric with its unit, where it comes from, what counts as odd, and how it is called."""

from __future__ import annotations

import dataclasses

from rollbook.report.outliers import Judge

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
    group: str
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
    Metric("cpu_busy", "CPU busy", "%", "Processor", "Time not idle, as a share of all CPUs", SHARE, ceiling=100.0),
    Metric("cpu_iowait", "I/O wait", "%", "Processor", "Idle time with I/O outstanding", HIGH_SHARE, trouble=True),
    Metric("cpu_steal", "Steal", "%", "Processor", "Time the hypervisor gave to others", HIGH_SHARE, trouble=True),
    Metric("load_1min", "Load", "tasks", "Processor", "Running and blocked tasks, 1 min average", Judge("high", 4.0)),
    Metric("disk_read", "Disk read", "B/s", "Disks", "Read from whole disks", FLOW, devices="disks"),
    Metric("disk_write", "Disk write", "B/s", "Disks", "Written to whole disks", FLOW, devices="disks"),
    Metric(
        "disk_read_latency", "Disk read latency", "ms", "Disks", "Mean time of a read", LATENCY, "disks", trouble=True
    ),
    Metric(
        "disk_write_latency",
        "Disk write latency",
        "ms",
        "Disks",
        "Mean time of a write",
        LATENCY,
        "disks",
        trouble=True,
    ),
    Metric(
        "disk_util", "Disk utilisation", "%", "Disks", "Time with requests under way", SHARE, "disks", ceiling=100.0
    ),
    Metric("net_rx", "Network in", "B/s", "Network", "Received, physical interfaces", FLOW, devices="interfaces"),
    Metric("net_tx", "Network out", "B/s", "Network", "Sent, physical interfaces", FLOW, devices="interfaces"),
    Metric(
        "net_errors",
        "Network errors",
        "1/s",
        "Network",
        "Errors and drops",
        Judge("high", 1.0),
        "interfaces",
        trouble=True,
    ),
    Metric("nfs_read", "NFS read", "B/s", "Shared storage", "Read from NFS servers", FLOW, devices="nfs_mounts"),
    Metric("nfs_write", "NFS write", "B/s", "Shared storage", "Written to NFS servers", FLOW, devices="nfs_mounts"),
    Metric(
        "nfs_read_latency", "NFS read latency", "ms", "Shared storage", "Mean time of a READ", LATENCY, trouble=True
    ),
    Metric(
        "nfs_write_latency", "NFS write latency", "ms", "Shared storage", "Mean time of a WRITE", LATENCY, trouble=True
    ),
    Metric("lustre_read", "Lustre read", "B/s", "Shared storage", "Read from Lustre", FLOW),
    Metric("lustre_write", "Lustre write", "B/s", "Shared storage", "Written to Lustre", FLOW),
    Metric("mem_available", "Memory available", "B", "Memory", "What new programs could have", LEVEL, scarce=True),
    Metric("page_cache", "Page cache", "B", "Memory", "File pages in memory", LEVEL),
    Metric("dirty", "Dirty pages", "B", "Memory", "Written but not yet on disk", Judge("high", 256.0 * MIB)),
    Metric("swap_in", "Swap in", "pages/s", "Memory", "Pages read back from swap", Judge("high", 100.0), trouble=True),
    Metric("swap_out", "Swap out", "pages/s", "Memory", "Pages written to swap", Judge("high", 100.0), trouble=True),
    Metric("psi_cpu", "CPU pressure", "%", "Pressure", "Time with tasks waiting for a CPU", HIGH_SHARE),
    Metric(
        "psi_memory", "Memory pressure", "%", "Pressure", "Time with tasks waiting for memory", HIGH_SHARE, trouble=True
    ),
    Metric("psi_io", "I/O pressure", "%", "Pressure", "Time with tasks waiting for I/O", HIGH_SHARE, trouble=True),
    Metric("gpu_util", "GPU busy", "%", "GPU", "Time with kernels running", SHARE, devices="gpus", ceiling=100.0),
    Metric("gpu_memory", "GPU memory", "B", "GPU", "Memory in use", LEVEL, devices="gpus"),
    Metric("rdma_rx", "RDMA in", "B/s", "RDMA", "Received by InfiniBand or RoCE ports", FLOW, devices="ports"),
    Metric("rdma_tx", "RDMA out", "B/s", "RDMA", "Sent by InfiniBand or RoCE ports", FLOW, devices="ports"),
)
