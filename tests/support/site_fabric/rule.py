"""The fabric of a host had to retry.

Why: Retries delay every transfer over the fabric.
Example: site_fabric: retries 12 (node17)
Fix: Replace the cable.
Reference: the manual of the fabric
"""

from collections.abc import Iterator

from rollbook.checks.run_data import RunData
from rollbook.records.findings import Finding

from .source import Fabric

ID, SEVERITY, NEEDS = "site-fabric-retried", "warn", (Fabric,)


def check(run: RunData) -> Iterator[Finding]:
    """Hosts with retries before the run."""
    for host, fabric in run.each(Fabric):
        if fabric.retries:
            yield Finding(message=f"site_fabric: retries {fabric.retries} ({host.name})", hosts=[host.name])
