"""The hosts of the Slurm job that this process runs in."""

from __future__ import annotations

from collections.abc import Mapping

from rollbook.errors import UsageError
from rollbook.hosts.lists import read_list
from rollbook.hosts.local import mark_local
from rollbook.hosts.model import Host
from rollbook.hosts.program import output_of

__all__ = ["from_slurm", "node_lists"]

VARIABLE = "SLURM_JOB_NODELIST"
SECONDS = 10.0


def node_lists(environ: Mapping[str, str]) -> dict[str, str]:
    """The node lists in `environ` (srun(1)), by group in a heterogeneous job, else under an empty name."""
    size = environ.get("SLURM_HET_SIZE", "")
    if not size.isdecimal():
        return {"": environ[VARIABLE]} if environ.get(VARIABLE) else {}
    lists = {str(group): environ.get(f"{VARIABLE}_HET_GROUP_{group}", "") for group in range(min(int(size), 1024))}
    return {group: names for group, names in lists.items() if names}


def from_slurm(environ: Mapping[str, str]) -> list[Host]:
    """The nodes of the allocation in `environ`; raises `UsageError` outside of one."""
    lists = node_lists(environ)
    if not lists:
        raise UsageError(f"not inside a Slurm job: {VARIABLE} is not set")
    return mark_local(read_list(_expanded(",".join(lists.values()))).values())


def _expanded(nodelist: str) -> str:
    """One name per line by `scontrol`, which reads every form of list; unchanged if it cannot run here."""
    try:
        return output_of(["scontrol", "show", "hostnames", nodelist], SECONDS)
    except UsageError:
        return nodelist
