"""/proc/sys: kernel settings that affect storage and network performance (admin-guide/sysctl)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from rollbook.sources.base import Facts, Glob, Pages, band, columns, same
from rollbook.sources.text import columns_of, integer

ROOT = "/proc/sys/"
_SETTINGS = """
    fs/aio-max-nr fs/nr_open fs/pipe-max-size
    kernel/hung_task_timeout_secs kernel/io_uring_disabled kernel/nmi_watchdog kernel/numa_balancing
    kernel/panic_on_oops kernel/perf_event_max_sample_rate kernel/perf_event_paranoid kernel/pid_max
    kernel/sched_autogroup_enabled kernel/sched_rt_runtime_us kernel/shmmax kernel/soft_watchdog
    kernel/timer_migration kernel/watchdog kernel/watchdog_thresh kernel/yama/ptrace_scope
    net/core/busy_poll net/core/busy_read net/core/default_qdisc net/core/dev_weight net/core/netdev_budget
    net/core/netdev_budget_usecs net/core/netdev_max_backlog net/core/optmem_max net/core/rmem_default
    net/core/rmem_max net/core/rps_sock_flow_entries net/core/somaxconn net/core/wmem_default net/core/wmem_max
    net/ipv4/conf/all/arp_announce net/ipv4/conf/all/arp_ignore net/ipv4/conf/all/rp_filter
    net/ipv4/ip_local_port_range net/ipv4/neigh/default/gc_thresh3 net/ipv4/tcp_congestion_control
    net/ipv4/tcp_ecn net/ipv4/tcp_limit_output_bytes net/ipv4/tcp_max_syn_backlog net/ipv4/tcp_mtu_probing
    net/ipv4/tcp_rmem net/ipv4/tcp_sack net/ipv4/tcp_slow_start_after_idle net/ipv4/tcp_timestamps
    net/ipv4/tcp_window_scaling net/ipv4/tcp_wmem
    sunrpc/tcp_max_slot_table_entries sunrpc/tcp_slot_table_entries
    vm/compaction_proactiveness vm/dirty_background_bytes vm/dirty_background_ratio vm/dirty_bytes
    vm/dirty_expire_centisecs vm/dirty_ratio vm/dirty_writeback_centisecs vm/max_map_count vm/nr_hugepages
    vm/overcommit_memory vm/overcommit_ratio vm/page-cluster vm/panic_on_oom vm/swappiness
    vm/vfs_cache_pressure vm/watermark_boost_factor vm/watermark_scale_factor vm/zone_reclaim_mode
"""
SETTINGS = tuple(_SETTINGS.split())
# The kernel derives these from the memory size, so equal hosts may differ slightly.
SCALED = ("fs/file-max", "fs/inotify/max_user_watches", "kernel/threads-max", "vm/min_free_kbytes")
SCALED_TRIPLES = ("net/ipv4/tcp_mem", "net/ipv4/udp_mem")


class Sysctl(Facts):
    """Settings by dotted name; values with several numbers are separated by single blanks."""

    settings: Annotated[dict[str, str], columns(same())]
    scaled: Annotated[dict[str, int], columns(band(0.02))] = msgspec.field(default_factory=dict)


def parse(pages: Pages) -> Sysctl:
    """One value per file. The three limits of `tcp_mem` and `udp_mem` become separate columns."""
    settings: dict[str, str] = {}
    scaled: dict[str, int] = {}
    for path, text in pages.items():
        short = path.removeprefix(ROOT)
        name = short.replace("/", ".")
        if short in SCALED:
            scaled[name] = integer(text.strip())
        elif short in SCALED_TRIPLES:
            low, pressure, high = (integer(word) for word in columns_of(text, 3)[:3])
            scaled |= {f"{name}.low": low, f"{name}.pressure": pressure, f"{name}.high": high}
        else:
            settings[name] = " ".join(text.split())
    return Sysctl(settings, scaled)


SOURCE = Glob([ROOT + name for name in (*SETTINGS, *SCALED, *SCALED_TRIPLES)], parse)
