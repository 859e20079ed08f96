"""The kernel does not count the I/O of a disk.

Why: The counters of the disk stay 0, so metrics of disks lack what it reads and writes.
Example: nvme0n1, nvme1n1: I/O is not counted (node17)
Fix: echo 1 > /sys/block/DISK/queue/iostats
Reference: block/queue-sysfs
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.metrics.totals import lowest_disks
from rollbook.records.findings import Finding
from rollbook.sources.block import Block

ID, SEVERITY, NEEDS = "disk-not-counted", "warn", (Block,)


def check(run: RunData) -> Iterator[Finding]:
    """Disks with `iostats` turned off, except those that use other devices."""
    for host in run.hosts_with_data:
        blocks = {block.device: block for block in host.rows(Block)}
        silent = [name for name in lowest_disks(blocks, [host]) if blocks[name].counts_io is False]
        if silent:
            yield Finding(
                message=f"{', '.join(silent)}: I/O is not counted ({host.name})",
                hosts=[host.name],
                evidence={"disks": silent},
            )
