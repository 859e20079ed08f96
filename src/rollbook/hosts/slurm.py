"""The hosts of the Slurm job we run in."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from rollbook.errors import UsageError
from rollbook.hosts.lists import read_list
from rollbook.hosts.local import mark_local
from rollbook.hosts.model import Host
from rollbook.hosts.program import output_of

__all__ = ["from_slurm"]

VARIABLE = "SLURM_JOB_NODELIST"
SECONDS = 10.0


def from_slurm(environ: Mapping[str, str]) -> list[Host]:
    """The nodes of the allocation that `environ` tells of (srun(1)); raises `UsageError` outside of one."""
    nodelist = environ.get(VARIABLE, "")
    if not nodelist:
        raise UsageError(f"not inside a Slurm job: {VARIABLE} is not set")
    return mark_local(read_list(_expanded(nodelist)).values())


def _expanded(nodelist: str) -> str:
    """One name per line by `scontrol`, which knows every form of list; it may lack its configuration here."""
    if shutil.which("scontrol"):
        try:
            return output_of(["scontrol", "show", "hostnames", nodelist], SECONDS)
        except UsageError:
            return nodelist
    return nodelist
