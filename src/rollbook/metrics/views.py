"""The views of a record: devices, totals, one row per host and beat with what tells most, statistics per phase.

A table that a record does not have is there without rows, a column that a kernel does not have is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rollbook.metrics.counters import GOOD_FOR
from rollbook.protocol.beats import LONGEST_STEP

__all__ = ["PAGING", "PARTS", "views_of"]

Column = Callable[[str, str], str]
"""The column of a table where it is there, else NULL."""

CPU_TIME = "(user + nice + system + idle + iowait + irq + softirq + steal)"  # guest time is in user and nice time
DISKS = """
    SELECT host, ts, device_name AS device, 512 * sectors_read AS disk_read, 512 * sectors_written AS disk_write,
        reads_completed AS disk_reads, writes_completed AS disk_writes,
        time_reading_ms / nullif(reads_completed, 0) AS disk_read_latency,
        time_writing_ms / nullif(writes_completed, 0) AS disk_write_latency,
        CASE WHEN time_doing_ios_ms > 1000 THEN 100 ELSE time_doing_ios_ms / 10 END AS disk_util,
        weighted_time_doing_ios_ms / 1000 AS disk_queue
    FROM diskstats_rates SEMI JOIN counted_disks counted
        ON diskstats_rates.host = counted.host AND device_name = counted.device"""
DISK_TOTAL = """
    SELECT host, ts, sum(disk_read) AS disk_read, sum(disk_write) AS disk_write, sum(disk_reads) AS disk_reads,
        sum(disk_writes) AS disk_writes,
        sum(disk_read_latency * disk_reads) / nullif(sum(disk_reads), 0) AS disk_read_latency,
        sum(disk_write_latency * disk_writes) / nullif(sum(disk_writes), 0) AS disk_write_latency,
        max(disk_util) AS disk_util, sum(disk_queue) AS disk_queue
    FROM disks GROUP BY host, ts"""
INTERFACES = """
    SELECT host, ts, interface_name AS device, rx_bytes AS net_rx, tx_bytes AS net_tx, rx_packets AS net_rx_packets,
        tx_packets AS net_tx_packets, rx_errors + tx_errors + rx_dropped + tx_dropped AS net_errors
    FROM net_dev_rates SEMI JOIN counted_interfaces counted
        ON net_dev_rates.host = counted.host AND interface_name = counted.device"""
NET_TOTAL = """
    SELECT host, ts, sum(net_rx) AS net_rx, sum(net_tx) AS net_tx, sum(net_rx_packets) AS net_rx_packets,
        sum(net_tx_packets) AS net_tx_packets, sum(net_errors) AS net_errors
    FROM interfaces GROUP BY host, ts"""
PORTS = "SELECT host, ts, port AS device, rx_bytes AS rdma_rx, tx_bytes AS rdma_tx FROM infiniband_counters_rates"
GPUS = """
    SELECT host, ts, card AS device, busy_percent::DOUBLE AS gpu_util, vram_used::DOUBLE AS gpu_memory FROM amdgpu
    UNION ALL
    SELECT host, ts, 'gpu' || index, busy_percent::DOUBLE, memory_used_mib * 1048576 FROM gpu"""
NFS_MOUNTS = """
    SELECT host, ts, mount_point AS device, server_read_bytes AS nfs_read, server_written_bytes AS nfs_write
    FROM nfs_rates"""
NFS_TOTAL = """
    SELECT host, ts, sum(nfs_read) AS nfs_read, sum(nfs_write) AS nfs_write FROM (
        SELECT host, ts, same, max(nfs_read) AS nfs_read, max(nfs_write) AS nfs_write
        FROM nfs_mounts JOIN same_mounts USING (host, device) GROUP BY ALL
    ) GROUP BY host, ts"""
NFS_LATENCY = """
    SELECT host, ts,
        sum(execute_ms) FILTER (operation = 'READ') / nullif(sum(ops) FILTER (operation = 'READ'), 0)
            AS nfs_read_latency,
        sum(execute_ms) FILTER (operation = 'WRITE') / nullif(sum(ops) FILTER (operation = 'WRITE'), 0)
            AS nfs_write_latency
    FROM (
        SELECT ops.host, ts, coalesce(same, mount_point), operation, max(ops) AS ops, max(execute_ms) AS execute_ms
        FROM nfs_ops_rates ops LEFT JOIN same_mounts ON ops.host = same_mounts.host AND mount_point = device
        GROUP BY ALL
    ) GROUP BY host, ts"""
LUSTRE_TOTAL = """
    SELECT host, ts, sum("sum") FILTER (operation = 'read_bytes') AS lustre_read,
        sum("sum") FILTER (operation = 'write_bytes') AS lustre_write
    FROM lustre_stats_rates GROUP BY host, ts"""
CPU = f"""
    SELECT host, ts, 100 * (1 - (idle + iowait) / nullif({CPU_TIME}, 0)) AS cpu_busy,
        100 * user / nullif({CPU_TIME}, 0) AS cpu_user, 100 * system / nullif({CPU_TIME}, 0) AS cpu_system,
        100 * iowait / nullif({CPU_TIME}, 0) AS cpu_iowait, 100 * steal / nullif({CPU_TIME}, 0) AS cpu_steal
    FROM all_cpus_rates"""  # noqa: S608 - our own text
# Microseconds of waiting per second, as a share.
PSI = """
    SELECT host, ts, max(some_total_us) FILTER (resource = 'cpu') / 1e4 AS psi_cpu,
        max(some_total_us) FILTER (resource = 'memory') / 1e4 AS psi_memory,
        max(full_total_us) FILTER (resource = 'memory') / 1e4 AS psi_memory_full,
        max(some_total_us) FILTER (resource = 'io') / 1e4 AS psi_io,
        max(full_total_us) FILTER (resource = 'io') / 1e4 AS psi_io_full
    FROM pressure_rates GROUP BY host, ts"""
TASKS = """
    SELECT host, ts, load_1min, ctxt AS context_switches, procs_running, procs_blocked
    FROM loadavg FULL JOIN stat_totals_rates USING (host, ts)"""
# By name: the tables of which it needs one, its columns, the query.
GPU = {
    "gpu_average": (
        ("gpu", "amdgpu"),
        ("gpu_util", "gpu_memory"),
        "SELECT host, ts, avg(gpu_util) AS gpu_util, sum(gpu_memory) AS gpu_memory FROM gpus GROUP BY host, ts",
    )
}
SLOW = {
    "rdma": (
        ("infiniband_counters",),
        ("rdma_rx", "rdma_tx"),
        "SELECT host, ts, sum(rdma_rx) AS rdma_rx, sum(rdma_tx) AS rdma_tx FROM ports GROUP BY host, ts",
    ),
    "nfs_total": (
        ("nfs",),
        ("nfs_read", "nfs_write"),
        NFS_TOTAL,
    ),
    "nfs_latency": (("nfs_ops",), ("nfs_read_latency", "nfs_write_latency"), NFS_LATENCY),
    "lustre": (("lustre_stats",), ("lustre_read", "lustre_write"), LUSTRE_TOTAL),
}
BEAT_TABLES = ("loadavg", "meminfo", "vmstat", "stat")
BEATS = """
    SELECT host, ts FROM loadavg UNION SELECT host, ts FROM meminfo UNION SELECT host, ts FROM vmstat
    UNION SELECT host, ts FROM all_cpus"""
PAGING = {"major_faults": "pgmajfault", "swap_in": "pswpin", "swap_out": "pswpout"}
"""Columns of `vmstat` by what they are called in views."""
PARTS = (
    "cpu_total",
    "task_total",
    "disk_total",
    "net_total",
    "memory_total",
    "pressure_total",
    "paging_total",
    "gpu_total",
    "slow_total",
)
"""The views that `rates` is made of; who wants no more than some columns is served faster by them."""
MEAN = "coalesce(sum(value * ns) / nullif(sum(ns), 0), avg(value))"
# A sample tells of the time since the one before it, and belongs to the phase in the middle of which that lies: the one
# taken at the edge of a phase ends it. Of a latency or a wait the greatest is the slowest, of a flow the least.
PHASE_STATS = """
    WITH stretches AS (
        SELECT host, ts, least(epoch_ns(ts) - coalesce(epoch_ns(lag(ts) OVER beats), epoch_ns(ts)), {longest}) AS ns
        FROM beats WINDOW beats AS (PARTITION BY host ORDER BY ts)
    ), placed AS (
        SELECT phases.number, phases.name AS phase, host, ts, ns FROM phases JOIN stretches
        ON epoch_ns(ts) - ns // 2 >= epoch_ns(phases.start) AND epoch_ns(ts) - ns // 2 < epoch_ns(phases."end")
    ), long AS (
        UNPIVOT (FROM placed JOIN rates USING (host, ts)) ON COLUMNS(* EXCLUDE (number, phase, host, ts, ns))
        INTO NAME metric VALUE value
    ), by_host AS (
        SELECT number, phase, metric, host, {mean} AS value FROM long GROUP BY ALL
    ), over_time AS (
        SELECT number, phase, metric, count(*) AS samples, {mean} AS mean, quantile_cont(value, 0.5) AS p50,
            quantile_cont(value, 0.95) AS p95, max(value) AS max
        FROM long GROUP BY ALL
    ), over_hosts AS (
        SELECT number, phase, metric, count(*) AS hosts, quantile_cont(value, 0.5) AS hosts_p50,
            quantile_cont(value, 0.95) AS hosts_p95, min(value) AS hosts_min, max(value) AS hosts_max,
            arg_min(host, value) AS lowest, arg_max(host, value) AS highest
        FROM by_host GROUP BY ALL
    )
    SELECT number, phase, metric, samples, mean, p50, p95, max, hosts, hosts_p50, hosts_p95, hosts_min, hosts_max,
        CASE WHEN metric LIKE '%latency' OR metric LIKE 'psi%' OR metric IN ('cpu_iowait', 'cpu_steal') THEN highest
            WHEN regexp_matches(metric, '^(disk|net|nfs|lustre|rdma)_(read|write|rx|tx)$|^gpu_util$|^cpu_busy$')
            THEN lowest END AS slowest_host
    FROM over_time JOIN over_hosts USING (number, phase, metric) ORDER BY number, metric"""


def views_of(column: Column, steps: Mapping[str, float]) -> dict[str, str]:
    """All views in the order they must be made; `steps` has the record's tables, and the seconds between samples."""
    memory = {
        "mem_available": "MemAvailable",
        "mem_free": "MemFree",
        "page_cache": "Cached",
        "dirty": "Dirty",
        "writeback": "Writeback",
        "swap_free": "SwapFree",
    }
    beat = max((steps[table] for table in BEAT_TABLES if table in steps), default=1.0)
    levels = ", ".join(f"1024 * {column('meminfo', name)} AS {alias}" for alias, name in memory.items())
    faults = ", ".join(f"{column('vmstat', name)} AS {alias}" for alias, name in PAGING.items())
    return {
        "disks": DISKS,
        "disk_total": DISK_TOTAL,
        "interfaces": INTERFACES,
        "net_total": NET_TOTAL,
        "ports": PORTS,
        "gpus": GPUS,
        "nfs_mounts": NFS_MOUNTS,
        "beats": BEATS,
        "cpu_total": CPU,
        "task_total": TASKS,
        "memory_total": f"SELECT host, ts, {levels} FROM meminfo",  # noqa: S608 - our own text
        "pressure_total": PSI,
        "paging_total": f"SELECT host, ts, {faults} FROM paging_rates vmstat",  # noqa: S608 - our own text
        "gpu_total": _held(GPU, steps),
        "slow_total": _held(SLOW, steps),
        "samples": f"""
            SELECT beats.host, beats.ts, loadavg.* EXCLUDE (host, ts, mono), 1024 * meminfo.total_kib AS mem_total,
                {levels}, stat.* EXCLUDE (host, ts, mono, cpu, extra),
                stat_totals.ctxt, stat_totals.processes AS forks, stat_totals.procs_running, stat_totals.procs_blocked,
                {faults}
            FROM beats LEFT JOIN loadavg USING (host, ts) LEFT JOIN meminfo USING (host, ts)
                LEFT JOIN all_cpus stat USING (host, ts)
                LEFT JOIN stat_totals USING (host, ts) LEFT JOIN paging vmstat USING (host, ts)
            ORDER BY beats.host, beats.ts""",  # noqa: S608 - our own text
        "rates": _rates(),
        "phase_stats": PHASE_STATS.format(longest=round(LONGEST_STEP * beat * 1e9), mean=MEAN),
    }


def _rates() -> str:
    """One row per host and beat, of all parts."""
    columns = ", ".join(f"{part}.* EXCLUDE (host, ts)" for part in PARTS)
    joined = " ".join(f"LEFT JOIN {part} USING (host, ts)" for part in PARTS)
    return f"SELECT beats.host, beats.ts, {columns} FROM beats {joined} ORDER BY beats.host, beats.ts"  # noqa: S608 - our own text


def _held(sources: Mapping[str, tuple[tuple[str, ...], tuple[str, ...], str]], steps: Mapping[str, float]) -> str:
    """What sources gave that are slow, or miss a beat now and then: on every beat until their next sample is due."""
    kept, joined = ["beats.host", "beats.ts"], []
    for name, (tables, columns, query) in sources.items():
        step = max((steps[table] for table in tables if table in steps), default=0.0)
        if not step:  # looking for the sample before each beat costs as much where there is none
            kept += [f"NULL::DOUBLE AS {one}" for one in columns]
            continue
        fresh = f"epoch_ns(beats.ts) - epoch_ns({name}.ts) <= {round(GOOD_FOR * step * 1e9)}"
        kept += [f"CASE WHEN {fresh} THEN {name}.{one} END AS {one}" for one in columns]
        joined.append(f"ASOF LEFT JOIN ({query}) {name} ON beats.host = {name}.host AND beats.ts >= {name}.ts")
    return f"SELECT {', '.join(kept)} FROM {'beats' if joined else '(FROM beats LIMIT 0) beats'} {' '.join(joined)}"  # noqa: S608 - our own text
