"""An NFS mount has fewer connections than its nconnect option.

Why: The kernel opens no further connections once one cannot be set up. Later mounts from a server share the connections
of the first one, and show its nconnect.
Example: nfs /data: 1 connection, nconnect=16 (node[01-32])
Fix: Unmount all file systems of that server, then mount them again.
Reference: nfs(5), nconnect
"""

from __future__ import annotations

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.checks.text import findings_by_text
from rollbook.clean import count_text
from rollbook.records.findings import Finding
from rollbook.sources.nfs import NfsMount

ID, SEVERITY, NEEDS = "nfs-connections-short", "warn", (NfsMount,)


def check(run: RunData) -> Iterator[Finding]:
    """Mounts with fewer connections than `nconnect`; one finding per mount."""
    return findings_by_text(
        (_describe(mount), host.name)
        for host, mount in run.each(NfsMount)
        if mount.nconnect is not None and mount.connections < mount.nconnect
    )


def _describe(mount: NfsMount) -> str:
    connections = count_text(mount.connections, "connection")
    return f"nfs {mount.mount_point}: {connections}, nconnect={mount.nconnect}"
