"""The kernel does not count the I/O of a disk.

Why: The counters of the disk stay 0, so metrics of disks lack what it reads and writes.
Example: nvme0n1, nvme1n1: I/O is not counted (node17)
Fix: echo 1 > /sys/block/DISK/queue/iostats
Reference: block/queue-sysfs
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.hosts import natural
from rollbook.metrics.totals import lowest_disks
from rollbook.records.findings import Finding
from rollbook.records.hosts import HostResult
from rollbook.sources.block import Block

ID, SEVERITY, NEEDS = "disk-not-counted", "warn", (Block,)


def check(run: RunData) -> Iterator[Finding]:
    """Disks with `iostats` turned off at start or end, except those that use other devices."""
    at_end = {host.name: _not_counted(host) for host in run.end if host.gave_data}
    for host in run.hosts_with_data:
        if disks := sorted({*_not_counted(host), *at_end.get(host.name, ())}, key=natural):
            yield Finding(
                message=f"{', '.join(disks)}: I/O is not counted ({host.name})",
                hosts=[host.name],
                evidence={"disks": disks},
            )


def _not_counted(host: HostResult) -> list[str]:
    blocks = {block.device: block for block in host.rows(Block)}
    return [name for name in lowest_disks(blocks, [host]) if blocks[name].counts_io is False]
